"use strict";
// Shows the blocks of blocks.py. Everything that is read comes from the server as text and is set as text.

const TOKEN = "X-Coterie-Token";
const NO_TOKEN = "This page needs the link that the command printed, with its token; open that link.";
const GONE = "The command that serves this page has ended or cannot be reached; what is shown may be out of date.";
const opened = new Map(); // which folds were opened or closed by hand
const parts = new Map(); // blocks that were asked for later
const shown = new Map(); // sections as they were drawn last
let nothingHeard = false;
const by = id => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function drawing(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---------------------------------------------------------------- asking

function keptToken() {
  const given = new URLSearchParams(location.search).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", "/" + location.hash);
  }
  return sessionStorage.getItem("token");
}
const token = keptToken();

async function ask(path, body) {
  const options = { headers: { [TOKEN]: token }, cache: "no-store" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error(GONE);
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function notice(sentence, tone) {
  by("notice").textContent = sentence;
  by("notice").className = "notice " + tone;
  by("notice").hidden = !sentence;
}

// ---------------------------------------------------------------- blocks

const render = block => draw[block.type](block);
const named = (tag, text, more = {}) => make(tag, { textContent: text, ...more });
const heading = title => (title ? [named("h3", title)] : []);

const draw = {
  text: block => make("div", { className: "text " + block.tone }, ...block.sentences.map(s => named("p", s))),
  facts: block => {
    const rows = block.rows.flatMap(([name, value]) => [named("dt", name), named("dd", value)]);
    return make("div", {}, ...heading(block.title), make("dl", {}, ...rows));
  },
  tiles: block => {
    const tile = ([name, value]) => make("div", {}, named("dt", name), named("dd", value));
    return make("dl", { className: "tiles" }, ...block.rows.map(tile));
  },
  table: block => {
    const kind = (i, text = "") => ({ className: block.numeric[i] ? "number" : text.length > 36 ? "long" : "" });
    const heads = block.heads.map((text, i) => named("th", text, { ...kind(i), scope: "col" }));
    const row = texts => make("tr", {}, ...texts.map((text, i) => named("td", text, kind(i, text))));
    const body = make("tbody", {}, ...block.rows.map(row));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
    const about = { className: "wide", tabIndex: 0, role: "region", "aria-label": block.title || "table" };
    return make("div", {}, ...heading(block.title), make("div", about, table));
  },
  chart: drawChart,
  part: block => {
    const place = make("div", { className: "part", "data-part": block.name });
    const wait = [named("p", block.wait, { className: "wait" })];
    place.append(...(parts.get(block.name)?.map(render) ?? wait));
    return place;
  },
  buttons: block => make("div", { className: "buttons" }, ...block.buttons.map(drawButton)),
  fold: block => {
    const isOpen = opened.get(block.key) ?? block.is_open;
    const title = named("summary", block.title, { "data-focus": block.key });
    const fold = make("details", { open: isOpen }, title, ...block.blocks.map(render));
    title.addEventListener("click", () => opened.set(block.key, !fold.open));
    fold.addEventListener("toggle", fetchParts);
    return fold;
  },
};

function drawButton(button) {
  const element = make("button", { type: "button", textContent: button.label, className: button.tone });
  element.setAttribute("data-focus", button.action + button.value);
  element.addEventListener("click", () => confirmed(button));
  return element;
}

function drawChart(block) {
  const xs = block.points.map(p => p[0]), ys = block.points.map(p => p[1]);
  const [left, right, low, high] = [xs[0], xs.at(-1), Math.min(...ys), Math.max(...ys)];
  const across = x => (right > left ? ((x - left) / (right - left)) * 100 : 50);
  const down = y => (high > low ? 100 - ((y - low) / (high - low)) * 100 : 50);
  const places = block.points.map(([x, y]) => [across(x), down(y)]);
  const thin = { "vector-effect": "non-scaling-stroke" };
  const line = drawing("polyline", { points: places.map(p => p.join(",")).join(" "), ...thin });
  const dot = drawing("line", { class: "dot", ...thin });
  const says = `${block.title}: from ${block.low} to ${block.high}, rounds ${left} to ${right}`;
  const about = { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": says };
  const svg = drawing("svg", about, line, dot), reading = make("span", { className: "reading" });
  const mark = at => {
    const [x, y] = places[at];
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: y, y2: y })) dot.setAttribute(name, value);
    reading.textContent = `round ${xs[at]}: ${ys[at].toLocaleString("en", { maximumSignificantDigits: 6 })}`;
  };
  const last = places.length - 1;
  const far = (i, x) => Math.abs(places[i][0] - x);
  const nearest = x => places.reduce((best, _, i) => (far(i, x) < far(best, x) ? i : best), 0);
  mark(last);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    mark(nearest(((event.clientX - box.left) / box.width) * 100));
  });
  svg.addEventListener("pointerleave", () => mark(last));
  const ends = (className, ...texts) => make("div", { className }, ...texts.map(text => named("span", text)));
  const values = ends("values", block.high, high > low ? block.low : "");
  const rounds = ends("rounds", `round ${left}`, right > left ? String(right) : "");
  const chart = make("div", { className: "chart" }, values, svg, rounds);
  return make("figure", {}, make("figcaption", {}, named("span", block.title), reading), chart);
}

// ---------------------------------------------------------------- the page

function show(page) {
  document.title = (page.sections.find(s => Number(s.badge)) ? "● " : "") + page.title;
  by("title").textContent = page.title;
  by("lead").textContent = page.lead;
  by("state").textContent = page.state;
  by("state").className = "state " + page.tone;
  const focused = document.activeElement?.getAttribute("data-focus");
  const keys = new Set(page.sections.map(section => section.key));
  for (const key of shown.keys()) if (!keys.has(key)) shown.delete(key), by(key).remove();
  page.sections.forEach((section, i) => {
    const text = JSON.stringify(section);
    if (shown.get(section.key) !== text) place(section, i);
    shown.set(section.key, text);
  });
  by("nav").replaceChildren(...page.sections.map(link));
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  fetchParts();
}

function place(section, i) {
  const drawn = make("section", { id: section.key }, named("h2", section.title), ...section.blocks.map(render));
  const before = by(section.key);
  if (before) before.replaceWith(drawn);
  else by("main").insertBefore(drawn, by("main").children[i] ?? null);
}

function link(section) {
  const badge = Number(section.badge) ? [" ", named("span", section.badge, { className: "badge" })] : [];
  return make("a", { href: "#" + section.key }, section.title, ...badge);
}

const waiting = () => [...document.querySelectorAll("details[open] [data-part]")];
let asking = false;
async function fetchParts() {
  if (asking) return;
  asking = true;
  try {
    let next;
    while ((next = waiting().find(place => !parts.has(place.dataset.part)))) {
      const name = next.dataset.part;
      const failed = problem => [{ type: "text", sentences: [problem.message], tone: "bad" }];
      parts.set(name, await ask("/api/part/" + name).catch(failed));
      for (const place of waiting().filter(other => other.dataset.part === name))
        place.replaceChildren(...parts.get(name).map(render));
    }
  } finally {
    asking = false;
  }
}

function confirmed(button) {
  by("question").textContent = button.question;
  by("consequences").replaceChildren(...button.consequences.map(s => named("p", s)));
  Object.assign(by("do"), { textContent: button.label, className: button.tone, disabled: false });
  by("do").onclick = async () => {
    by("do").disabled = true;
    try {
      notice((await ask("/api/act", { action: button.action, value: button.value })).said, "good");
    } catch (problem) {
      notice(problem.message, "bad");
    }
    by("dialog").close();
    await look();
  };
  by("dialog").showModal();
  by("cancel").focus();
}
by("cancel").onclick = () => by("dialog").close();

async function look() {
  let seconds = 3;
  try {
    const page = await ask("/api/page");
    if (nothingHeard) notice("", "");
    nothingHeard = false;
    show(page);
    seconds = page.seconds;
  } catch (problem) {
    nothingHeard = true;
    notice(problem.message, "bad");
  }
  return seconds;
}

async function begin() {
  if (!token) return notice(NO_TOKEN, "bad");
  for (;;) {
    const seconds = await look();
    await new Promise(resolve => setTimeout(resolve, seconds * 1000));
  }
}
begin();
