"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = name => document.getElementById(name);
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: as the system has it, light, dark.
  const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
  let theme = 0;
  byId("theme").addEventListener("click", event => {
    theme = (theme + 1) % themes.length;
    const [name, words] = themes[theme];
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    event.target.textContent = `Theme: ${words}`;
  });

  // Sorting: a click on the head of a column sorts by it, the largest first; another one turns the order.
  const collator = new Intl.Collator("en", {numeric: true});
  const keyOf = cell => cell.dataset.s !== undefined ? Number(cell.dataset.s) : cell.textContent;
  function compare(one, other) {
    const [a, b] = [keyOf(one), keyOf(other)];
    const numbers = typeof a === "number" && typeof b === "number";
    return numbers ? a - b : typeof a === typeof b ? collator.compare(a, b) : typeof a === "number" ? 1 : -1;
  }
  function sort(table, head) {
    const place = head.cellIndex, body = table.tBodies[0];
    const isText = body.rows.length > 0 && body.rows[0].cells[place].tagName === "TH";
    const before = head.getAttribute("aria-sort");
    const order = before === null ? (isText ? "ascending" : "descending") : before === "ascending" ? "descending" : "ascending";
    all("th", table.tHead).forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    body.append(...[...body.rows].sort((x, y) => sign * compare(x.cells[place], y.cells[place])));
  }
  all("table.sortable").forEach(table => all("th button", table.tHead).forEach(
    button => button.addEventListener("click", () => sort(table, button.closest("th")))));

  // A cluster that is pointed at is marked wherever it is shown.
  const marked = all("[data-cluster]");
  const light = cluster => marked.forEach(item => item.classList.toggle("lit", item.dataset.cluster === cluster));

  const map = byId("map-details");
  if (map) {
    const hint = map.textContent;
    all("svg.map g[data-cluster]").forEach(group => {
      const show = () => { map.textContent = group.getAttribute("aria-label"); light(group.dataset.cluster); };
      const hide = () => { map.textContent = hint; light(null); };
      group.addEventListener("pointerenter", show);
      group.addEventListener("focus", show);
      group.addEventListener("pointerleave", hide);
      group.addEventListener("blur", hide);
    });
  }
  all("table.sizes tr[data-cluster]").forEach(row => {
    row.addEventListener("pointerenter", () => light(row.dataset.cluster));
    row.addEventListener("pointerleave", () => light(null));
  });

  const heat = document.querySelector("table.heat");
  if (heat) {
    const names = heat.dataset.names.split("|"), details = byId("cell-details"), cells = all("td[data-v]", heat);
    const heads = all("thead th", heat), rows = all("tbody tr", heat);
    const partsOf = cell => cell.dataset.v.split("|");

    // Details of the cell that is pointed at, or that has the focus.
    function show(cell) {
      const values = partsOf(cell).map((value, i) => `${names[i]} ${value}`).join(", ");
      const head = heads[cell.cellIndex].textContent;
      details.textContent = `${cell.parentElement.cells[0].textContent}, ${head}: ${values}`;
      light(heads[cell.cellIndex].dataset.cluster);
    }
    heat.addEventListener("pointerover", event => { const cell = event.target.closest("td[data-v]"); if (cell) show(cell); });
    heat.addEventListener("pointerleave", () => light(null));
    heat.addEventListener("focusin", event => { if (event.target.matches("td[data-v]")) show(event.target); });
    heat.addEventListener("focusout", () => light(null));

    // One cell is reached by Tab, the others from there by arrow keys.
    cells.forEach(cell => { cell.tabIndex = -1; });
    if (cells.length) cells[0].tabIndex = 0;
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    heat.addEventListener("keydown", event => {
      const step = steps[event.key], cell = event.target.closest("td[data-v]");
      if (!step || !cell) return;
      event.preventDefault();
      const seen = [...heat.tBodies[0].rows].filter(row => !row.hidden);
      const row = seen[seen.indexOf(cell.parentElement) + step[0]], next = row && row.cells[cell.cellIndex + step[1]];
      if (!next || next.dataset.v === undefined) return;
      cell.tabIndex = -1; next.tabIndex = 0; next.focus();
    });

    // What cells show.
    byId("show").addEventListener("change", event => {
      cells.forEach(cell => { cell.textContent = partsOf(cell)[Number(event.target.value)]; });
    });

    // Only columns whose name contains a text.
    const filter = byId("filter"), count = byId("filter-count"), more = byId("more-multiples");
    filter.addEventListener("input", () => {
      const text = filter.value.trim().toLowerCase();
      const fits = name => name.toLowerCase().includes(text);
      rows.forEach(row => { row.hidden = !fits(row.cells[0].textContent); });
      all("figure[data-name]").forEach(figure => { figure.hidden = !fits(figure.dataset.name); });
      if (more && text) more.open = true;
      const seen = rows.filter(row => !row.hidden);
      count.textContent = text ? `${seen.length} of ${rows.length} columns` : "";
      cells.forEach(cell => { cell.tabIndex = -1; });
      const first = seen.length && [...seen[0].cells].find(cell => cell.dataset.v !== undefined);
      if (first) first.tabIndex = 0;
    });
  }

  // On paper everything is unfolded.
  window.addEventListener("beforeprint", () => all("details").forEach(part => { part.open = true; }));
})();
