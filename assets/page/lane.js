// One lane's token stream: rounds are appended and taken back as the playhead moves.

// Tokens; whole blocks outside the view are not laid out. A block ends where the text breaks a
// line anyway, for its end is one too.
const BLOCK = 256;
const LONGEST_BLOCK = 1024;
const AT_END = 48; // px from the end within which the view keeps following

export function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Draws one lane into its article. Model text only ever becomes text nodes. */
export function createLane(article) {
  const stream = article.querySelector(".sv-stream");
  const isBaseline = article.dataset.lane === "baseline";
  const caret = element("i", "sv-caret");
  let drawn = []; // one { node, block, tokens } per shown round
  const text = element("div");
  let blocks = [], total = 0, pinned = true;

  stream.addEventListener("scroll", () => {
    pinned = stream.scrollHeight - stream.scrollTop - stream.clientHeight < AT_END;
  }, { passive: true });
  // Whatever changes the height of the text or of the lane, its end stays in sight.
  const toEnd = new ResizeObserver(() => { if (pinned) stream.scrollTop = stream.scrollHeight; });
  toEnd.observe(stream);
  toEnd.observe(text);

  function reset(prompt) {
    drawn = []; blocks = []; total = 0; pinned = true;
    text.replaceChildren();
    stream.replaceChildren(text);
    const given = newBlock();
    given.node.append(element("span", "sv-given", prompt));
    stream.scrollTop = 0;
  }

  function newBlock() {
    const block = { node: element("div", "sv-block"), tokens: 0 };
    blocks.push(block);
    text.append(block.node);
    return block;
  }

  function append(round, part = null) {
    let block = blocks[blocks.length - 1];
    if (isFull(block, drawn[drawn.length - 1])) block = newBlock();
    const node = element("span", "sv-round");
    const tokens = part ? tokensSoFar(part) : tokensOf(round);
    let atBreak = drawn[drawn.length - 1]?.atBreak ?? false;
    tokens.forEach((token, i) => {
      const child = tokenNode(token, round, total + i, atBreak);
      if (isWritten(token) && token.text) atBreak = token.text.endsWith("\n");
      if (i === 0 && !isBaseline) child.querySelector(".w").before(roundNumber(round.index + 1));
      node.append(child);
    });
    block.node.append(node);
    block.tokens += tokens.length;
    total += tokens.length;
    drawn.push({ node, block, tokens: tokens.length, atBreak, part });
  }

  function takeBack() {
    const { node, block, tokens } = drawn.pop();
    node.remove();
    block.tokens -= tokens;
    total -= tokens;
    if (block.tokens === 0 && blocks.length > 1) {
      block.node.remove();
      blocks.pop();
    }
  }

  /** Show these finished rounds and, if given, as much of the next as an event tells. */
  function show(rounds, part) {
    if (drawn[drawn.length - 1]?.part) takeBack();
    while (drawn.length > rounds.length) takeBack();
    for (const round of rounds.slice(drawn.length)) append(round);
    if (part) append(part.round, part);
    blocks[blocks.length - 1]?.node.append(caret);
  }

  /** Back to the end of the text, wherever the viewer had scrolled. */
  function follow() {
    pinned = true;
    stream.scrollTop = stream.scrollHeight;
  }

  return { reset, show, follow, stream };
}

/** The drafted tokens of a round in order, then the one that the target added. */
export function tokensOf(round) {
  return [...round.drafted, ...round.emitted.filter((token) => token.outcome !== "accepted")];
}

/** The drafted tokens of an unfinished round: some judged, the others still waiting. */
function tokensSoFar({ round, seen, judged }) {
  return round.drafted.slice(0, seen).map((token, i) =>
    (i < judged ? token : { ...token, outcome: "pending" }));
}

function isFull(block, last) {
  return block.tokens >= LONGEST_BLOCK || (block.tokens >= BLOCK && Boolean(last?.atBreak));
}

const isWritten = (token) => ["accepted", "corrected", "bonus"].includes(token.outcome);

/** `atBreak`: whether the text before ends in a line break. */
function tokenNode(token, round, index, atBreak) {
  const node = element("span", `t ${token.outcome}`);
  Object.assign(node.dataset, { round: round.index, index });
  if (token.outcome !== "pending") node.dataset.outcome = token.outcome;
  node.tabIndex = -1;
  const lead = token.text.match(/^[ \t]+(?=\S)/)?.[0] ?? "";
  if (lead) node.append(lead);
  for (const piece of token.text.slice(lead.length).match(/\n|[^\n]+/g) ?? []) {
    const isBreak = piece === "\n";
    const part = element("span", isBreak ? "w nl" : piece.trim() ? "w" : "w blank", piece);
    // Every line break shows its mark. It breaks no line if it was refused, nor if one stands
    // before it already: an empty line would only cost room.
    if (isBreak && (atBreak || !isWritten(token))) part.classList.add("flat");
    if (isWritten(token)) atBreak = isBreak;
    node.append(part);
  }
  if (!token.text) node.append(element("span", "w none"));
  return node;
}

/** Shown by the style sheet, so that a token's own text stays what the model wrote. */
function roundNumber(number) {
  const node = element("i", "sv-n");
  node.dataset.n = number;
  return node;
}
