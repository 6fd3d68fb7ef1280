"""The report as one HTML file: it opens from disk, in the reader's theme, with no script and no
requests."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..runs.palette import FONT, PALETTE
from .report import QUESTIONS, Advice, AuditReport, Load, Verdict

SIGNS = {"yes": "✓", "no": "✗", "cannot be told": "?"}
CLASSES = {"yes": "good", "no": "bad", "cannot be told": "open"}

POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"
"""No scripts, and no requests except those of a form."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{head}<title>{title}</title>
<style>{style}</style>
<main>
<h1>{heading}</h1>
<p class="what">{what}</p>
{body}
</main>
</html>
"""

_STYLE = """
:root { %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
body { margin: 0; background: var(--page); color: var(--ink); font: 17px/1.5 %(font)s; }
main { max-width: 52rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .3rem; }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; }
p { margin: 0 0 .6rem; }
.what, .doubt, .notes, dt { color: var(--soft); }
section.verdict {
  margin: 1.2rem 0; padding: 1rem 1.2rem; background: var(--panel);
  border: 1px solid var(--line); border-left: .35rem solid var(--mark); border-radius: .4rem;
}
.good { --mark: var(--bonus); } .bad { --mark: var(--rejected); } .open { --mark: var(--draft); }
.sign { color: var(--mark); font-weight: 700; margin-right: .4rem; }
.verdict p { font-size: 1.05rem; }
dl { display: grid; grid-template-columns: minmax(7rem, 13rem) 1fr; gap: .3rem 1rem; margin: 0; }
dt, dd { margin: 0; font-size: .92rem; overflow-wrap: anywhere; }
pre {
  margin: .3rem 0 1rem; padding: .7rem .9rem; background: var(--panel);
  border: 1px solid var(--line); border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .88rem;
}
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .3rem .8rem; }
.bars span { font-size: .92rem; align-self: center; }
.bar { background: var(--track); border-radius: .2rem; height: 1rem; width: 100%%; }
.bar rect { fill: var(--accepted); } .bar line { stroke: var(--ink); stroke-width: 3; }
button { font: inherit; padding: .5rem 1.2rem; border-radius: .4rem; border: 1px solid var(--line);
  background: var(--accepted); color: var(--page); cursor: pointer; }
button:focus-visible { outline: 3px solid var(--ink); outline-offset: 2px; }
.notes { font-size: .88rem; margin-top: 2.5rem; border-top: 1px solid var(--line); }
.notes p:first-child { margin-top: .8rem; }
@media (max-width: 34rem) {
  body { font-size: 16px; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
}
"""


def audit_html(report: AuditReport, more: str = "") -> str:
    """The report as a page. more: HTML below the heading."""
    what = f"{report.deployment}. {report.date}"
    body = [
        more,
        *map(_verdict, report.verdicts),
        *_positions(report),
        *_crossover(report.loads),
        *_advice(report.advice),
        *_plan(report),
        *_notes(report),
    ]
    parts = "\n".join(filter(None, body))
    return page_html(f"Audit of {report.model}", what, parts)


def page_html(heading: str, what: str, body: str, head: str = "") -> str:
    """A page in the style of a report. what: a line below the heading. head: HTML for its head."""
    return _PAGE.format(
        policy=POLICY,
        title=escape(heading),
        head=head,
        style=style(),
        heading=escape(heading),
        what=escape(what),
        body=body,
    )


def style() -> str:
    """The style sheet of all such pages."""
    themes = {theme: _variables(colours) for theme, colours in PALETTE.items()}
    return _STYLE % {**themes, "font": FONT}


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _verdict(verdict: Verdict) -> str:
    sign = f'<span class="sign" aria-hidden="true">{SIGNS[verdict.answer]}</span>'
    parts = [
        f'<section class="verdict {CLASSES[verdict.answer]}">',
        f"<h2>{sign}{QUESTIONS[verdict.question]}</h2><p>{escape(verdict.sentence)}</p>",
    ]
    if verdict.doubt:
        parts.append(f'<p class="doubt">{escape(verdict.doubt)}</p>')
    if verdict.evidence:
        facts = [
            f"<dt>{escape(fact.source)}<dd>{escape(fact.sentence)}" for fact in verdict.evidence
        ]
        parts.append(f"<dl>{''.join(facts)}</dl>")
    parts.append("</section>")
    return "".join(parts)


def _positions(report: AuditReport) -> Iterator[str]:
    """Bars of the share of steps that kept their first k drafts."""
    if report.drafting is None or not report.drafting.by_position:
        return
    yield "<h3>Steps that kept their first drafts</h3>"
    rows = [
        _bar(str(position), share, f"{share:.0%}")
        for position, share in enumerate(report.drafting.by_position, 1)
    ]
    yield f'<div class="bars">{"".join(rows)}</div>'


def _crossover(loads: tuple[Load, ...]) -> Iterator[str]:
    """Bars of the ratio by requests at once, with a mark where it is 1."""
    ratios = {row.at_once: row.ratio for row in loads if row.ratio is not None}
    if not ratios:
        return
    yield "<h3>Speed relative to the baseline, by number of requests at once (the mark is 1)</h3>"
    most = 2.0
    for ratio in ratios.values():
        most = max(most, ratio.high)
    rows = []
    for at_once, ratio in ratios.items():
        share = ratio.median / most
        rows.append(_bar(str(at_once), share, ratio.shown(), mark=1.0 / most))
    yield f'<div class="bars">{"".join(rows)}</div>'


def _bar(label: str, share: float, text: str, mark: float | None = None) -> str:
    """A row of bars. Widths are attributes of SVG: a page's policy may forbid inline styles."""
    line = ""
    if mark is not None:
        at = f"{100 * mark:.1f}%"
        line = f'<line x1="{at}" x2="{at}" y1="0" y2="100%"/>'
    return (
        f"<span>{escape(label)}</span>"
        f'<svg class="bar" aria-hidden="true"><rect width="{100 * share:.1f}%" height="100%"/>'
        f"{line}</svg><span>{escape(text)}</span>"
    )


def _advice(items: tuple[Advice, ...]) -> Iterator[str]:
    if items:
        yield "<h3>What would help</h3>"
    for advice in items:
        yield f"<p>{escape(advice.sentence)}</p>"
        if advice.lines:
            yield f"<pre>{escape(f'# {advice.engine}')}\n{escape(advice.lines)}</pre>"


def _plan(report: AuditReport) -> Iterator[str]:
    if report.plan is None:
        return
    yield "<h3>The plan, as announced</h3>"
    yield f"<p>{escape(' '.join(report.plan.sentences))}</p>"


def _notes(report: AuditReport) -> Iterator[str]:
    lines = list(report.notes)
    if report.stopped:
        lines.append("The audit was stopped: these are the measurements so far.")
    lines.append(
        f"{report.requests} requests in {report.seconds:.0f} s, specviz {report.version}, exit "
        f"status {report.exit_status}."
    )
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    yield f'<div class="notes">{paragraphs}</div>'
