// The form and its questions. An answer is asked for a moment after the last change; late answers to
// earlier questions are dropped.

import { column, differences, summary } from "./view.js";
import { element } from "./text.js";

const WAIT = 250; // milliseconds after a key
const REMEMBERED = 40;

const by = (id) => document.getElementById(id);
const remembered = new Map();
let setup = null;
let waiting = 0;
let running = new AbortController();

async function ask(path, question, signal) {
  const options = question && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question), signal,
  };
  const response = await fetch(path, options || { signal }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is dpe explore still running?");
  });
  const answer = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`);
  return answer;
}

/** The answer to a question, from memory if it was asked before. */
async function answerTo(question, signal) {
  const key = JSON.stringify(question);
  if (!remembered.has(key)) {
    const answer = await ask("/api/segment", question, signal);
    if (remembered.size >= REMEMBERED) remembered.delete(remembered.keys().next().value);
    remembered.set(key, answer);
  }
  return remembered.get(key);
}

const oneLine = (text) => text.replace(/[\r\n]+/g, " ").trim();

function chosenSegmenters() {
  const names = [...document.querySelectorAll("#segmenters input:checked")].map((input) => input.value);
  return setup.segmenters.filter((segmenter) => names.includes(segmenter.name));
}

/** One entry per column: its title, its question, and the one with the plain source where that differs. */
function columnsWanted() {
  const [target, first, second] = ["target", "source", "second"].map((id) => oneLine(by(id).value));
  const draw = Number(by("draw").value);
  const both = by("two").checked && second !== "";
  const shared = { target, n_best: Number(by("n-best").value) };
  return chosenSegmenters().flatMap((segmenter) => {
    const sources = !segmenter.has_source ? [[null, ""]] : both ? [[first, ", source A"], [second, ", source B"]] : [[first, ""]];
    return sources.map(([source, label]) => {
      const plain = { ...shared, source, segmenter: segmenter.name };
      const recut = draw > 0 && (segmenter.can_drop || segmenter.can_sample);
      const noise = segmenter.can_drop ? { source_dropout: Number(by("dropout").value) } : { source_alpha: Number(by("alpha").value) };
      const question = recut ? { ...plain, draw, ...noise } : plain;
      return { title: segmenter.name + label, question, plain: recut ? plain : null };
    });
  });
}

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  by("results").setAttribute("aria-busy", "true");
  const wanted = columnsWanted();
  if (!wanted.length) return refuse("Choose at least one segmenter.");
  const answers = [];
  try {
    for (const { question, plain } of wanted) {
      answers.push([await answerTo(question, signal), plain && (await answerTo(plain, signal))]);
    }
  } catch (error) {
    return signal.aborted ? undefined : refuse(error.message);
  }
  return signal.aborted ? undefined : show(wanted, answers);
}

function show(wanted, answers) {
  const titles = wanted.map(({ title }) => title);
  const main = answers.map(([answer]) => answer);
  const columns = element("div", { class: wanted.length > 1 ? "columns" : "columns single" });
  columns.append(...answers.map(([answer, plain], index) => column(titles[index], answer, plain)));
  const parts = wanted.length > 1 ? [differences(titles, main), columns] : [columns];
  by("results").replaceChildren(...parts);
  by("problem").hidden = true;
  by("legend").hidden = false;
  by("status").textContent = main.length > 1 ? `${main.length} columns.` : summary(...answers[0]);
  by("results").setAttribute("aria-busy", "false");
}

function refuse(sentence) {
  by("problem").textContent = sentence;
  by("problem").hidden = false;
  by("legend").hidden = true;
  by("status").textContent = "";
  by("results").replaceChildren();
  by("results").setAttribute("aria-busy", "false");
}

function updateSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(update, WAIT);
}

/** What the controls say and which of them mean anything. */
function describeControls() {
  const draw = Number(by("draw").value);
  const chosen = chosenSegmenters();
  const withSource = chosen.some((segmenter) => segmenter.has_source);
  const canDrop = chosen.some((segmenter) => segmenter.can_drop);
  const canSample = chosen.some((segmenter) => segmenter.can_sample);
  const noise = [canDrop ? `p = ${by("dropout").value}` : "", canSample ? `alpha = ${by("alpha").value}` : ""].filter(Boolean);
  const text = draw === 0 ? "none" : [`draw ${draw}`, ...noise].join(", ");
  by("draw-text").textContent = text;
  by("draw").setAttribute("aria-valuetext", text);
  for (const id of ["source", "second", "two"]) by(id).disabled = !withSource;
  by("draw").disabled = !canDrop && !canSample;
  by("dropout").disabled = !canDrop;
  by("alpha-field").hidden = !setup.segmenters.some((segmenter) => segmenter.can_sample);
  by("alpha").disabled = !canSample;
  by("second-field").hidden = !by("two").checked;
  by("target-field").classList.toggle("wide", by("two").checked);
  document.querySelector('[data-source="A"]').hidden = !by("two").checked;
}

function changed() {
  describeControls();
  updateSoon();
}

function pick(index) {
  const example = setup.examples[index];
  if (!example) return;
  by("source").value = example.source || "";
  by("target").value = example.target;
  by("draw").value = 0;
  describeControls();
}

function offer() {
  by("example").append(element("option", { value: "" }, "your own text"));
  setup.examples.forEach(({ source, target }, index) => {
    const text = source ? `${target} (${source})` : target;
    by("example").append(element("option", { value: index }, text.length > 90 ? `${Array.from(text).slice(0, 89).join("")}…` : text));
  });
  setup.segmenters.forEach(({ name, pieces, has_source: hasSource }, index) => {
    const about = ` (${pieces.toLocaleString("en")} pieces${hasSource ? "" : ", no source"})`;
    const box = element("input", { type: "checkbox", value: name, checked: index === 0 });
    by("segmenters").append(element("label", { class: "check" }, box, ` ${name}`, element("span", { class: "note" }, about)));
  });
  by("n-best").max = setup.largest_n_best;
  by("version").textContent = `dpe ${setup.version}`;
}

function listen() {
  by("form").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); update(); });
  by("example").addEventListener("change", (event) => { pick(event.target.value); update(); });
  for (const id of ["source", "second", "target"]) {
    by(id).addEventListener("input", () => { by("example").value = ""; changed(); });
    by(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); by("form").requestSubmit(); }
    });
  }
  for (const id of ["draw", "dropout", "alpha", "n-best", "two"]) by(id).addEventListener("input", changed);
  by("segmenters").addEventListener("change", changed);
}

try {
  setup = await ask("/api/setup");
  offer();
  listen();
  if (setup.examples.length) by("example").value = "0";
  pick(0);
  describeControls();
  if (setup.examples.length) await update();
} catch (error) {
  refuse(error.message);
  throw error;
}
