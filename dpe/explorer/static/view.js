// What is shown about one answer, and about the differences between answers.

import { latticeFigure } from "./lattice.js";
import { direction, element, number, piecesOf, plural, probability, same, shape } from "./text.js";

const LATTICES_AT_ONCE = 60;

/** A column: everything about one answer. `plain` is the answer for the source without dropout, if that is another.
    Every column has the same blocks, empty or not, so that they can stand side by side. */
export function column(title, answer, plain) {
  const cuts = `Most probable segmentation, and ${answer.own_cut_method} below it`;
  const section = element("section", { class: "column", "aria-label": title });
  section.append(
    element("div", {}, element("h2", {}, title), facts(answer)),
    answer.source_words ? block("Source as read", sourceLine(answer, plain)) : element("div"),
    block(cuts, gloss(answer)),
    plain ? block("What the re-segmented source changes", changes(answer, plain)) : element("div"),
    block("Lattices", ...lattices(answer.words)),
    block("Most probable segmentations of the sentence", cutTable(answer)),
  );
  return section;
}

function block(title, ...children) {
  return element("div", {}, element("h3", {}, title), ...children);
}

/** What a listener should hear when an answer has come. */
export function summary(answer, plain) {
  const differing = answer.words.filter((word) => word.differs).length;
  return (
    `${plural(answer.words.length, "word")}, ${differing} segmented differently from ${answer.own_cut_method}. ` +
    `The most probable segmentation has probability ${probability(answer.n_best[0].probability)}.` +
    (plain ? ` Draw ${answer.draw}: ${recutInWords(answer, plain)}` : "")
  );
}

/** A table of the words that the columns segment differently, with a sentence that says how many they are. */
export function differences(titles, answers) {
  const words = answers[0].words.map((word) => word.word);
  const comparable = answers.every((answer) => same(words, answer.words.map((word) => word.word)));
  const section = element("section", { class: "comparison", "aria-label": "Between the columns" });
  section.append(element("h2", {}, "Between the columns"));
  if (!comparable) {
    section.append(element("p", {}, "The vocabularies normalise this sentence differently, so its words are not compared."));
    return section;
  }
  const differing = words.flatMap((_, index) =>
    answers.every((answer) => same(answer.words[index].best, answers[0].words[index].best)) ? [] : [index],
  );
  section.append(element("p", {}, `${differing.length} of ${plural(words.length, "word")} segmented differently.`));
  if (differing.length) section.append(wordTable(titles, answers, differing));
  return section;
}

function facts(answer) {
  const parts = [
    ["log p(y|x)", number(answer.log_probability)],
    ["bits per character", answer.bits_per_character.toFixed(2)],
    ["entropy of the segmentations", `${answer.entropy.toFixed(2)} nats`],
  ];
  if (answer.unknown_characters) parts.push(["unknown characters", String(answer.unknown_characters)]);
  const list = element("dl", { class: "facts" });
  for (const [name, value] of parts) list.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return list;
}

function sourceLine(answer, plain) {
  const line = element("p", { class: "line-of-words", dir: direction(answer.source_words.flat().join("")) });
  answer.source_words.forEach((pieces, index) => {
    const recut = plain && !same(pieces, plain.source_words[index]);
    const word = element("span", { class: recut ? "word differs" : "word" }, piecesOf(pieces, "source"));
    if (recut) word.append(element("b", { class: "differs-sign" }, "≠"), element("span", { class: "hidden" }, "segmented differently"));
    line.append(word, " ");
  });
  return line;
}

/** Words one after the other, each with its two segmentations one below the other. */
function gloss(answer) {
  const list = element("ol", { class: "gloss", dir: direction(answer.normalized) });
  const names = element("li", { class: "names", "aria-hidden": "true" });
  names.append(element("span", {}, "DPE"), element("span", {}, answer.own_cut_method));
  list.append(names);
  for (const word of answer.words) {
    const item = element("li", { class: word.differs ? "word differs" : "word" });
    const best = element("span", {}, piecesOf(word.best, "best"));
    if (word.differs) best.append(element("b", { class: "differs-sign" }, "≠"));
    item.append(element("span", { class: "hidden" }, "DPE "), best);
    item.append(element("span", { class: "hidden" }, `, ${answer.own_cut_method} `));
    item.append(element("span", {}, piecesOf(word.own_cut, "own")));
    list.append(item);
  }
  return list;
}

function recutInWords(answer, plain) {
  const recut = answer.source_words.filter((pieces, index) => !same(pieces, plain.source_words[index])).length;
  return (
    `${recut} of ${plural(answer.source_words.length, "source word")} segmented differently; ` +
    `${changedWords(answer, plain).length} of ${plural(answer.words.length, "target word")} segmented differently.`
  );
}

function changedWords(answer, plain) {
  return answer.words.flatMap((word, index) => (same(word.best, plain.words[index].best) ? [] : [index]));
}

/** What the re-segmented source changes in the target. */
function changes(answer, plain) {
  const changed = changedWords(answer, plain);
  const shift = largestShift(answer.words, plain.words);
  const box = element("div", { class: "changes" });
  const sentence = element("p", {}, recutInWords(answer, plain));
  if (shift.change > 0) {
    const word = element("bdi", { dir: direction(shift.word) }, shift.word);
    sentence.append(" Largest change of a boundary’s probability: ", `${probability(shift.change)}, in `, word, ".");
  }
  box.append(sentence);
  if (changed.length) box.append(wordTable(["Plain source", `Draw ${answer.draw}`], [plain, answer], changed));
  return box;
}

function largestShift(words, others) {
  let largest = { change: 0, word: "" };
  words.forEach((word, index) => {
    word.boundaries.forEach((p, place) => {
      const change = Math.abs(p - others[index].boundaries[place]);
      if (change > largest.change) largest = { change, word: word.word };
    });
  });
  return largest;
}

function wordTable(titles, answers, indices) {
  const rows = indices.map((index) => [
    element("th", { scope: "row" }, element("bdi", { dir: direction(answers[0].words[index].word) }, answers[0].words[index].word)),
    ...answers.map((answer) => {
      const word = answer.words[index];
      return element("td", {}, piecesOf(word.best, "best"), element("span", { class: "note" }, ` p ${probability(word.best_probability)}`));
    }),
  ]);
  return table(["Word", ...titles], rows, "Words segmented differently");
}

function lattices(words) {
  const grid = element("div", { class: "lattices", dir: direction(words.map((word) => word.word).join("")) });
  let shown = 0;
  const more = element("button", { type: "button", class: "more" });
  const add = () => {
    grid.append(...words.slice(shown, shown + LATTICES_AT_ONCE).map(latticeFigure));
    shown = Math.min(shown + LATTICES_AT_ONCE, words.length);
    more.textContent = `Draw more (${plural(words.length - shown, "word")} left)`;
    more.hidden = shown === words.length;
  };
  add();
  more.addEventListener("click", add);
  return [grid, more];
}

function cutTable(answer) {
  const best = answer.n_best[0];
  const rows = answer.n_best.map((cut, rank) => {
    const line = element("td", { class: "line-of-words", dir: direction(answer.normalized) });
    cut.words.forEach((pieces, index) => {
      const differs = !same(pieces, best.words[index]);
      line.append(element("span", { class: differs ? "word differs" : "word" }, piecesOf(pieces, "best")), " ");
    });
    const share = element("td", { class: "number" }, bar(cut.probability), probability(cut.probability));
    return [element("th", { scope: "row" }, String(rank + 1)), line, share, element("td", { class: "number" }, number(cut.score))];
  });
  return table(["Rank", "Segmentation", "Probability", "Score"], rows, "Most probable segmentations");
}

function bar(share) {
  const drawing = shape("svg", { class: "bar-of", width: 60, height: 10, "aria-hidden": "true" });
  drawing.append(shape("rect", { class: "empty", width: 60, height: 10 }), shape("rect", { class: "full", width: 60 * share, height: 10 }));
  return drawing;
}

function table(titles, rows, name) {
  const made = element("table", {}, element("caption", { class: "hidden" }, name));
  made.append(element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)))));
  made.append(element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells))));
  return element("div", { class: "table", role: "region", "aria-label": name, tabindex: "0" }, made);
}
