"""The sections of ``report.html``, a module each: functions from what a run has left to markup."""
