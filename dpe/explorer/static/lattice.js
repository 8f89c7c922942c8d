// The lattice of a word: characters along a line, an arc above them for every piece, boundary
// probabilities below.

import { direction, element, number, plural, probability, shape } from "./text.js";

const CELL = 27; // width of a character
const MARGIN = 12;
const HIGHEST = 128; // of an arc

/** A figure about a word; hovering or focusing an arc tells about its piece below it. */
export function latticeFigure(word) {
  const detail = element("p", { class: "detail" });
  const rest = () => detail.replaceChildren(...restingDetail(word));
  const drawing = draw(word, (edge) => detail.replaceChildren(...edgeDetail(edge)), rest);
  rest();
  const caption = element("figcaption", {}, element("bdi", {}, word.word.replace(/^▁(?=.)/u, "")));
  if (word.differs) caption.append(" ", element("b", { class: "differs-sign" }, "≠"));
  const scroller = element("div", { class: "scroller" });
  scroller.append(drawing);
  const figure = element("figure", { class: word.differs ? "lattice differs" : "lattice", dir: direction(word.word) });
  figure.append(caption, scroller, detail, element("p", { class: "hidden" }, boundariesInWords(word)));
  if (word.edges_left_out > 0) {
    figure.append(element("p", { class: "note" }, `${plural(word.edges_left_out, "improbable piece")} not drawn.`));
  }
  return figure;
}

function restingDetail(word) {
  const cut = element("bdi", { class: "detail-piece", dir: direction(word.word) }, word.best.join(" | "));
  return [cut, element("span", {}, `p ${probability(word.best_probability)} · entropy ${word.entropy.toFixed(2)}`)];
}

function edgeDetail(edge) {
  const kind = edge.unknown ? " (unknown)" : edge.on_best_path ? " (best path)" : "";
  const piece = element("bdi", { class: "detail-piece", dir: direction(edge.piece) }, edge.piece);
  return [
    element("span", {}, piece, kind),
    element("span", {}, `probability ${probability(edge.probability)} · score ${number(edge.score)}`),
  ];
}

function edgeInWords(edge) {
  const path = edge.on_best_path ? ", on the best path" : "";
  const unknown = edge.unknown ? ", unknown" : "";
  return `${edge.piece}, characters ${edge.start + 1} to ${edge.end}, probability ${probability(edge.probability)}, score ${number(edge.score)}${path}${unknown}`;
}

function boundariesInWords(word) {
  const characters = Array.from(word.word);
  const parts = word.boundaries.slice(0, -1).map((p, index) => `${characters[index]} ${probability(p)}`);
  return parts.length ? `Probability of a boundary after each character: ${parts.join(", ")}.` : "One character.";
}

function draw(word, show, hide) {
  const characters = Array.from(word.word);
  const mirrored = direction(word.word) === "rtl";
  const width = 2 * MARGIN + characters.length * CELL;
  const top = 8 + Math.max(...word.edges.map((edge) => height(edge)));
  const place = (position) => MARGIN + CELL * (mirrored ? characters.length - position : position);
  const svg = shape("svg", {
    width, height: top + 62, viewBox: `0 0 ${width} ${top + 62}`, role: "group",
    "aria-label": `Lattice of ${word.word}, ${plural(word.edges.length, "piece")}; arrow keys go from piece to piece`,
  });
  svg.append(shape("line", { class: "axis", x1: MARGIN, x2: width - MARGIN, y1: top, y2: top }));
  drawArcs(svg, word.edges, { top, place, show, hide, mirrored });
  drawCharacters(svg, characters, { top, place });
  drawOwnCut(svg, word.own_cut, { top, place });
  drawBoundaries(svg, word.boundaries, { top, place });
  return svg;
}

function height(edge) {
  return Math.min(HIGHEST, 7 + 11 * (edge.end - edge.start));
}

/** Long arcs lie below short ones, so that every arc can be reached by the pointer. */
function drawArcs(svg, edges, { top, place, show, hide, mirrored }) {
  const groups = edges.map((edge) => arc(edge, { top, place, show, hide }));
  const order = edges.map((_, index) => index);
  order.sort((a, b) => edges[b].end - edges[b].start - (edges[a].end - edges[a].start) || edges[a].on_best_path - edges[b].on_best_path);
  svg.append(...order.map((index) => groups[index]));
  groups[0].setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const here = groups.indexOf(document.activeElement);
    const next = step(event.key, here, groups.length, mirrored);
    if (here < 0 || next === null) return;
    event.preventDefault();
    groups[here].setAttribute("tabindex", "-1");
    groups[next].setAttribute("tabindex", "0");
    groups[next].focus();
  });
}

function step(key, here, count, mirrored) {
  const forward = mirrored ? "ArrowLeft" : "ArrowRight";
  const backward = mirrored ? "ArrowRight" : "ArrowLeft";
  if (key === forward || key === "ArrowDown") return Math.min(here + 1, count - 1);
  if (key === backward || key === "ArrowUp") return Math.max(here - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : null;
}

function arc(edge, { top, place, show, hide }) {
  const [from, to] = [place(edge.start), place(edge.end)];
  const control = top - height(edge) / 0.75; // a cubic reaches three quarters of its control points
  const d = `M${from} ${top}C${from} ${control} ${to} ${control} ${to} ${top}`;
  const faint = edge.probability < 0.001 ? " faint" : "";
  const kind = edge.on_best_path ? "best" : `other${faint}`;
  const group = shape("g", { class: "edge", tabindex: "-1", role: "img", "aria-label": edgeInWords(edge) });
  group.append(
    shape("path", { class: "hit", d }),
    shape("path", { class: `line ${kind}`, d, "stroke-width": (edge.on_best_path ? 1.5 : 1) + 5.5 * edge.probability }),
  );
  for (const event of ["pointerenter", "focus"]) group.addEventListener(event, () => show(edge));
  for (const event of ["pointerleave", "blur"]) group.addEventListener(event, hide);
  return group;
}

function drawCharacters(svg, characters, { top, place }) {
  characters.forEach((character, index) => {
    const x = (place(index) + place(index + 1)) / 2;
    const [label, kind] = visible(character);
    const text = shape("text", { class: kind, x, y: top + 21, "text-anchor": "middle", "aria-hidden": "true" });
    text.textContent = label;
    svg.append(text);
  });
}

/** A character that can be seen: marks stand on a circle, what has no shape is its code. */
function visible(character) {
  if (character === "▁") return ["▁", "marker"];
  if (/\p{M}/u.test(character)) return [`◌${character}`, "character"];
  if (/[\p{C}\p{Z}]/u.test(character)) return [character.codePointAt(0).toString(16).toUpperCase(), "code"];
  return [character, "character"];
}

/** Where the vocabulary's own cut has its boundaries: diamonds on the line. */
function drawOwnCut(svg, pieces, { top, place }) {
  let position = 0;
  for (const piece of pieces.slice(0, -1)) {
    position += Array.from(piece).length;
    svg.append(shape("path", { class: "own", d: `M${place(position)} ${top - 6}l4 6l-4 6l-4-6z` }));
  }
}

function drawBoundaries(svg, boundaries, { top, place }) {
  boundaries.slice(0, -1).forEach((p, index) => {
    const x = place(index + 1);
    const length = Math.max(1, 15 * p);
    svg.append(shape("rect", { class: "boundary", x: x - 2, y: top + 31, width: 4, height: length }));
    if (p < 0.005) return;
    const text = shape("text", { class: "percent", x, y: top + 58, "text-anchor": "middle", "aria-hidden": "true" });
    text.textContent = p >= 0.995 ? "1" : p.toFixed(2).slice(1);
    svg.append(text);
  });
}
