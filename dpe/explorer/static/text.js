// Elements, numbers and pieces as text. Data only ever becomes text nodes, never markup.

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** An element with attributes and children; a string child is text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** An element of a drawing. */
export function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** "rtl" if the first letter of the text is of a script that runs to the left. */
export function direction(text) {
  const letter = text.match(/\p{L}/u);
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

/** 0.93, 0.0021, or "below 0.0001". */
export function probability(value) {
  if (value > 0 && value < 0.0001) return "below 0.0001";
  if (value < 0.01) return value === 0 ? "0" : value.toPrecision(1);
  return value.toFixed(value >= 0.995 && value < 0.99995 ? 4 : 2);
}

/** With a true minus sign. */
export function number(value, digits = 2) {
  return value.toFixed(digits).replace(/^-/, "−");
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A word as its pieces side by side. `kind` is best, own or source. */
export function piecesOf(pieces, kind) {
  const text = pieces.join("");
  const word = element("bdi", { class: `pieces ${kind}`, dir: direction(text) });
  pieces.forEach((piece, index) => {
    if (index > 0) word.append(element("span", { class: "hidden" }, " | "));
    word.append(element("span", { class: "piece" }, ...marked(piece)));
  });
  return word;
}

function marked(piece) {
  if (!piece.startsWith("▁")) return [piece];
  return [element("span", { class: "marker" }, "▁"), piece.slice(1)];
}

export function same(first, second) {
  return first.length === second.length && first.every((piece, index) => piece === second[index]);
}
