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

const draw = {
  text: block => make("div", { className: "text " + block.tone }, ...block.sentences.map(s => make("p", { textContent: s }))),
  facts: block => {
    const rows = block.rows.flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })]);
    const title = block.title ? [make("h3", { textContent: block.title })] : [];
    return make("div", {}, ...title, make("dl", {}, ...rows));
  },
  tiles: block => {
    const tile = ([name, value]) => make("div", {}, make("dd", { textContent: value }), make("dt", { textContent: name }));
    return make("dl", { className: "tiles" }, ...block.rows.map(tile));
  },
  table: block => {
    const kind = (i, text = "") => (block.numeric[i] ? "number" : text.length > 36 ? "long" : "");
    const heads = block.heads.map((text, i) => make("th", { textContent: text, className: kind(i), scope: "col" }));
    const cells = row => row.map((text, i) => make("td", { textContent: text, className: kind(i, text) }));
    const rows = block.rows.map(row => make("tr", {}, ...cells(row)));
    const body = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
    const wide = make("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": block.title || "table" }, body);
    return block.title ? make("div", {}, make("h3", { textContent: block.title }), wide) : wide;
  },
  chart: drawChart,
  part: block => {
    const place = make("div", { className: "part", "data-part": block.name });
    place.append(...(parts.has(block.name) ? parts.get(block.name).map(render) : [make("p", { className: "wait", textContent: block.wait })]));
    return place;
  },
  buttons: block => make("div", { className: "buttons" }, ...block.buttons.map(drawButton)),
  fold: block => {
    const isOpen = opened.has(block.key) ? opened.get(block.key) : block.is_open;
    const title = make("summary", { textContent: block.title, "data-focus": block.key });
    const fold = make("details", { open: isOpen, "data-key": block.key }, title, ...block.blocks.map(render));
    title.addEventListener("click", () => opened.set(block.key, !fold.open));
    fold.addEventListener("toggle", fetchParts);
    return fold;
  },
};
const render = block => draw[block.type](block);

function drawButton(button) {
  const element = make("button", { type: "button", textContent: button.label, className: button.tone });
  element.setAttribute("data-focus", button.action + button.value);
  element.addEventListener("click", () => confirmed(button));
  return element;
}

function drawChart(block) {
  const xs = block.points.map(p => p[0]), ys = block.points.map(p => p[1]);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) => [right > left ? (x - left) / (right - left) * 100 : 50, high > low ? 100 - (y - low) / (high - low) * 100 : 50];
  const places = block.points.map(place);
  const line = drawing("polyline", { points: places.map(p => p.join(",")).join(" "), "vector-effect": "non-scaling-stroke" });
  const dot = drawing("line", { class: "dot", "vector-effect": "non-scaling-stroke" });
  const svg = drawing("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" }, line, dot);
  svg.setAttribute("aria-label", `${block.title}: from ${block.low} to ${block.high}, rounds ${left} to ${right}`);
  const reading = make("span", { className: "reading" });
  const mark = at => {
    const [x, y] = places[at];
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: y, y2: y })) dot.setAttribute(name, value);
    reading.textContent = `round ${xs[at]}: ${ys[at].toLocaleString("en", { maximumSignificantDigits: 6 })}`;
  };
  const last = places.length - 1;
  mark(last);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * 100;
    mark(places.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(places[best][0] - x) ? i : best), 0));
  });
  svg.addEventListener("pointerleave", () => mark(last));
  const values = make("div", { className: "values" }, make("span", { textContent: block.high }), make("span", { textContent: high > low ? block.low : "" }));
  const rounds = make("div", { className: "rounds" }, make("span", { textContent: `round ${left}` }), make("span", { textContent: right > left ? right : "" }));
  return make("figure", {}, make("figcaption", {}, make("span", { textContent: block.title }), reading), make("div", { className: "chart" }, values, svg, rounds));
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
  const drawn = make("section", { id: section.key }, make("h2", { textContent: section.title }), ...section.blocks.map(render));
  const before = by(section.key);
  if (before) before.replaceWith(drawn);
  else by("main").insertBefore(drawn, by("main").children[i] ?? null);
}

function link(section) {
  const badge = Number(section.badge) ? [" ", make("span", { className: "badge", textContent: section.badge })] : [];
  return make("a", { href: "#" + section.key }, section.title, ...badge);
}

let asking = false;
async function fetchParts() {
  if (asking) return;
  asking = true;
  try {
    let next;
    while ((next = [...document.querySelectorAll("details[open] [data-part]")].find(p => !parts.has(p.dataset.part)))) {
      const name = next.dataset.part;
      const answer = await ask("/api/part/" + name).catch(e => [{ type: "text", sentences: [e.message], tone: "bad" }]);
      parts.set(name, answer);
      document.querySelectorAll(`[data-part="${CSS.escape(name)}"]`).forEach(p => p.replaceChildren(...answer.map(render)));
    }
  } finally {
    asking = false;
  }
}

function confirmed(button) {
  by("question").textContent = button.question;
  by("consequences").replaceChildren(...button.consequences.map(s => make("p", { textContent: s })));
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
