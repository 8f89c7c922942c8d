"""How a report looks: on a wide and a narrow screen, light and dark, and on paper."""

from __future__ import annotations

STYLE = """
:root {
  --paper: #ffffff; --panel: #f5f6f7; --ink: #1b1f23; --soft: #5a636c; --line: #d5dadf;
  --best: #d55e00; --other: #0072b2; --mark: #fdeee3;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --panel: #1d2226; --ink: #e8ebed; --soft: #a3adb6; --line: #3a4249;
    --best: #f0803c; --other: #56b4e9; --mark: #3a2415;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem clamp(.75rem, 3vw, 2rem) 3rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.5 system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
a { color: var(--other); }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: start; font-weight: 600; padding-bottom: .4rem; white-space: nowrap; }
th, td { padding: .25rem .75rem .25rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th { border-bottom: 1px solid var(--soft); font-weight: 600; }
td { border-bottom: 1px solid var(--line); }
.left, .cuts th, .cuts td { text-align: start; }
.note, figcaption { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.missing { border-inline-start: 4px solid var(--best); background: var(--panel); padding: .5rem .9rem; }
figure { margin: 1.25rem 0; }
figure > svg { width: 100%; max-width: 42rem; height: auto; display: block; fill: currentColor;
  stroke-linejoin: round; }
.cuts { width: 100%; margin-bottom: 1.25rem; font-size: 1rem; }
.cuts th { width: 1%; border-bottom: 0; color: var(--soft); }
.cuts td { white-space: normal; overflow-wrap: anywhere; border-bottom: 0; }
.cuts tr:last-child > * { border-bottom: 1px solid var(--line); padding-bottom: .6rem; }
.cut { color: var(--best); font-weight: 700; padding: 0 1px; }
mark { background: var(--mark); color: inherit; border-bottom: 2px solid var(--best); padding: 0 2px; }
.lattices { display: flex; flex-wrap: wrap; align-items: end; gap: .5rem; overflow-x: auto; }
.lattice { flex: none; }
.lattice path { fill: none; stroke: var(--other); }
.lattice .best { stroke: var(--best); }
.lattice .other { opacity: .8; }
.lattice .tick { stroke: var(--best); stroke-width: 1.5; }
.lattice text { fill: currentColor; text-anchor: middle; font-size: 17px; }
.lattice .soft { fill: var(--soft); }
.lattice .percent { fill: var(--soft); font-size: 10px; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .75rem;
  overflow-x: auto; font-size: .85rem; line-height: 1.4; }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  figure, tr, .cuts { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll, .lattices, pre { overflow: visible; }
  .scroll table { font-size: 8.5pt; }
  .scroll th, .scroll td, caption { white-space: normal; }
  .lattice { max-width: 100%; height: auto; }
  pre { white-space: pre-wrap; }
}
"""
