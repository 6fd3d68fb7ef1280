// The types that the page's modules share. They are global: no module has to import them.

// A trace in the form of specviz/runs/trace.py (schema 2). Fields that are None or empty in Python's tokens
// are missing in the JSON.

type LaneName = string; // "speculative" and "baseline" in a race of two, or other names
// "untold": the last token of a step of a watched server that does not report its drafts
type Outcome = "accepted" | "rejected" | "ignored" | "corrected" | "bonus" | "untold";
type EndReason = "eos" | "length" | "context" | "stop" | "stopped";

interface Choice {
  id: number;
  text: string;
  probability: number;
}

interface Token {
  id: number; // missing for a rejected draft of a watched server, whose text is empty
  text: string;
  outcome: Outcome;
  p?: number;
  q?: number;
  u?: number;
  beta?: number;
  soft_p?: number;
  soft_q?: number;
  top_p?: Choice[];
  top_q?: Choice[];
  top_residual?: Choice[];
  seen?: number; // earlier occurrences of the text before it, if its q was counted
  weight?: number;
  threshold?: number;
  chance?: number;
}

interface FiledRound {
  lane: LaneName;
  index: number;
  drafted: Token[];
  last: Token | null; // after the accepted ones, unless the text had ended
  draft_seconds: number;
  verify_seconds: number;
  overhead_seconds: number;
  clock: number; // seconds
  wall?: number; // seconds
  exchanged?: number; // bytes, if the target is on a server
  server_seconds?: number; // of verify_seconds, if the server reports them
}

interface Round extends FiledRound {
  readonly emitted: Token[]; // the accepted ones and the last
}

interface Settings {
  gamma: number;
  temperature: number;
  top_k: number;
  top_p: number;
  max_new_tokens: number;
  seed: number;
  drafter: string;
  gamma_policy: string;
  chat: string;
  verdict?: string; // older recordings lack it
  stop: string[];
  ignore_eos: boolean;
}

interface Model {
  name: string;
  parameters: number;
  form: string;
  revision: string | null;
  context?: number | null; // tokens
  shared?: number; // tokens in common with the target, if its tokenizer is another
  weights?: string; // their stored format, if it is kept
  products?: "int8" | "fp32"; // the arithmetic of few-bit weights on a processor
}

interface FiledHeader {
  prompt: string;
  question?: string | null; // the question, if the prompt has it in a chat template
  messages?: { role: "system" | "user" | "assistant"; content: string }[]; // all turns, if there are several
  prompt_ids: number[];
  lanes: Record<LaneName, Settings>; // of lanes with drafts
  drafts: Record<LaneName, Model | null>;
  target: Model;
  memory?: { texts: number; tokens: number } | null; // earlier texts that drafts may come from
  device: string;
  processor: string;
  dtype: string;
  versions: Record<string, string>;
  threads: number;
  lane_threads?: Record<LaneName, number> | null;
  date: string; // ISO 8601, UTC
  prefill_seconds: Partial<Record<LaneName, Record<string, number>>>;
  mode: string;
  source?: string | null; // the serving engine that speculated itself and was only watched
  streaming_rate?: number | null; // tokens per second of the server's own stream
}

interface Header extends FiledHeader {
  readonly settings: Settings; // of the first lane
  readonly draft: Model | null;
}

interface Agreement {
  identical: boolean | null;
  compared: number; // tokens
  divergence: { index: number; margin: number | null } | null;
}

interface FiledEnd {
  reasons: Partial<Record<LaneName, EndReason>>;
  lanes?: Record<LaneName, Agreement> | null;
  counted?: { steps: number; drafted: number; accepted: number } | null; // by a watched server
}

interface End extends FiledEnd, Readonly<Agreement> {} // of the first lane

interface FiledTrace {
  schema: number;
  header: FiledHeader;
  rounds: FiledRound[];
  end: FiledEnd | null;
}

interface Trace {
  schema: number;
  header: Header;
  rounds: Round[];
  end: End | null;
  isInterrupted?: boolean; // whether it has no end and will get none; not in the JSON
}

// The page's own types of tokens and rounds.

/** A token; a drafted one that is not judged yet is "pending". */
type ShownToken = Omit<Token, "outcome"> & { outcome: Outcome | "pending" };

/** A step of a round as it plays: `seen` drafts are visible, and `judged` of them have a verdict. */
interface PlayStep {
  round: Round;
  seen: number;
  judged: number;
  done: boolean;
  time: number; // seconds on the lane's clock
}

/** The content at the playhead: finished rounds, and the step inside an unfinished one by lane. */
interface Shown {
  rounds: Round[];
  partial: Partial<Record<LaneName, PlayStep | null>>;
}

// The messages of the server, in the form of specviz/page/delivery.py.

/** A token of a delta: missing fields are null or an empty list. */
type WireToken = { [Name in keyof Token]: Token[Name] | null };

type WireRound = Omit<FiledRound, "drafted" | "last"> & { drafted: WireToken[]; last: WireToken | null };

interface Delta {
  run: string;
  seq: number; // of its first event
  next: number; // the number after its last event
  over: boolean;
  header?: FiledHeader;
  rounds?: WireRound[];
  end?: FiledEnd;
  status?: string;
  left?: number; // seconds until the run begins, about
  error?: string;
  fall_back?: boolean;
  remark?: string;
}

/** The state of a sampling experiment, from specviz/page/follow_ups.py. */
interface ExperimentState {
  id?: string;
  over: boolean;
  done?: number;
  draws?: number;
  status?: string;
  stopped?: boolean;
  error?: string;
  result?: ExperimentResult;
}

interface ExperimentResult {
  length: number; // tokens
  tokens: number; // of the prompt
  shortened: boolean;
  statistic: number;
  degrees: number;
  p_value: number | null;
  cells: { text: string | null; ours: number; theirs: number }[];
}

/** The progress of loading the page's own pair, from specviz/page/loads.py. */
interface LoadState {
  over: boolean;
  error?: string | null;
  title?: string;
  said?: string;
}

/** A pair that is not here yet, and its fetch, from specviz/page/fetches.py. */
interface FetchState {
  state: "idle" | "running" | "stopped" | "failed" | "done";
  pair: string;
  title: string;
  running: string; // the title of the pair that the page runs meanwhile
  mayFetch: boolean; // whether this visitor may have it fetched
  bytes: number; // of its files
  done: number; // of them, here by now
  step: string; // the current step, in words
  elapsed: number | null; // seconds
  left: number | null; // seconds, about
  error: string | null;
  offer?: Partial<Config>; // what the page offers now that the pair is here
}

/** The request of a check: its id, if the server knows it, one of its lanes, and the run itself. */
interface RunWish {
  run: string | null;
  lane?: LaneName;
  trace: unknown;
}

interface DifferenceResult {
  verdict: "tie" | "bug";
  summary: string;
  index: number;
  ours: string;
  theirs: string;
  scored: { name: string; p_ours: number; p_theirs: number; apart: number }[]; // nats
  rounding: number; // nats
  behind: number; // nats
  held: number;
  judged: number;
  reasons: string[];
}

/** The doctor's report on a pair, from specviz/page/doctor.py. */
interface DoctorReport {
  verdict: "good" | "warning" | "stop";
  summary: string;
  findings: { level: "good" | "warning" | "stop"; topic: string; sentence: string }[];
  fetch: string | null; // the command that fetches the pair's files, if they are not here
  drafters: string[]; // that the pair offers, its default first
  models: string; // the pair without the form of its weights
}

/** The callbacks of a run. */
interface RunNews {
  received(delta: Delta): void;
  refused(sentence: string): void;
}

/** The server's functions. A saved page has none. */
interface Server {
  run?(asked: Record<string, Value>, news: RunNews): Promise<void>;
  stop?(asked: { session: string }): Promise<void>;
  examine?(naming: Record<string, Value>): Promise<DoctorReport | { error: string }>;
  missed?(asked: { run: string; seq: number }): Promise<Delta[] | null>;
  opened?(file: Blob): Promise<{ trace?: FiledTrace; error?: string }>;
  take_away?(form: string, trace: Blob): Promise<TakenAway>;
  begin_difference?(asked: RunWish): Promise<ExperimentState>;
  begin_rerun?(asked: RunWish): Promise<ExperimentState>;
  begin_sampling?(asked: SamplingWish): Promise<ExperimentState>;
  ask_job?(asked: { id: string }): Promise<ExperimentState>;
  loading?(asked: object): Promise<LoadState>;
  begin_fetch?(asked: object): Promise<FetchState | { error: string }>;
  stop_fetch?(asked: object): Promise<FetchState | { error: string }>;
  ask_fetch?(asked: object): Promise<FetchState | { error: string }>;
  end_job?(asked: { id: string }): Promise<void>;
}

type TakenAway = { error: string } | { error?: undefined; text: string; suffix: string };

interface SamplingWish {
  run: string | null;
  lane?: LaneName;
  prompt: string;
  settings: Settings;
  again: number;
  draws: number;
}

// The offer from Python: specviz/page/offer.py, or specviz/runs/html.py for a saved run.

type Value = string | number | null; // of a control
type Theme = "light" | "dark";

interface Preset {
  name: string;
  prompt: string;
  why: string;
  settings: Record<string, Value>;
}

interface DrafterWords {
  label: string;
  choice: string; // in a control
  clause: string; // who guesses, within a sentence
  who: string; // the same at the beginning of one
  guessed: string; // the origin of guesses, with {count}; empty if a model draws them one after another
  guessed_greedy: string;
  unguessed: string; // why a round has no guesses
  needs: string | null; // the part that a pair must have for it
  certain: boolean; // whether q is 1 for each guess
  has_model: boolean; // whether a model guesses
}

interface VerdictWords {
  label: string;
  exact: boolean;
  warning: string;
  law: string;
  note: string;
  left: string; // the name of the distribution that a correction is drawn from
  chance: boolean; // whether it has its own probability to accept a guess
  threshold: string | null; // the number that is compared with the threshold: "u" or "p"
  together: boolean; // whether the guesses of a round are judged together
  draws: boolean;
}

interface Vocabulary {
  drafters: Record<string, DrafterWords>;
  verdicts: Record<string, VerdictWords>;
  policies: Record<string, { label: string; choice: string }>;
  compared: Record<string, { label: string }>;
  lanes: Record<string, { label: string }>;
}

/** A choice, and its heading in a list, if it has one. */
type ListedChoice = [label: string, value: string, group?: string];

/** A control of the settings panel, from specviz/page/controls.py. */
interface ControlWords {
  name: string;
  kind: "list" | "choice" | "range" | "number" | "text";
  label: string;
  info?: string;
  folded?: boolean; // among the advanced ones
  choices?: ListedChoice[];
  limits?: [number, number];
  step?: number;
  longest?: number; // characters
  placeholder?: string;
}

interface Config {
  vocabulary: Vocabulary;
  questionsAt: string; // base address of the requests to the server
  controls: ControlWords[]; // in the order of the panel
  served?: boolean; // by a server that can run the race
  awaited?: FetchState | null; // a pair that is not here yet and whose recordings are shown
  isLoading?: boolean; // whether its own pair is not loaded yet, or could not be
  plotly?: string; // address of Plotly's script; a small player has none
  figures?: RunFigures; // of the run in a saved page
  links: Record<string, string>; // in Help, after those of papers: "api", "source", "audit"
  titles: Record<string, string>; // of the charts, by name
  presets: Preset[];
  questions: { question: string, run: string, beside?: string }[]; // of the stage, with their recordings
  recordings: Record<string, string>; // addresses by name
  defaults: Record<string, Value>; // settings in the order of their controls
  limits: Record<string, [number, number]>;
  choices: Record<string, string[]>;
  pairs: Record<string, PairModels>;
  pairTitles?: Record<string, string>; // titles by pair
  drafters: Record<string, string[] | null>; // of the listed pairs, the default first; null if unknown
  drafterLabels: [label: string, value: string][]; // of all drafters, in the panel's order
  whole: string[]; // settings that are whole numbers
  schema: number; // of traces
  mostPrompt: number; // characters
  files?: string; // base address to which files are sent
  mostPacked: number; // bytes of a recording's file
  mostGamma: number; // the longest examined draft, unless a run drafts more
  draws: number; // of the sampling experiment, in each lane
  trace?: FiledTrace; // the saved run
}

/** Names and parameters of a pair's models; parameters are null if unknown. */
interface PairModels {
  target: [string, number | null];
  draft?: [string, number | null];
  head?: [string, number | null];
  unpacked?: string; // the dtype of a target that is not kept in its stored format
  bits?: number; // of a weight of the target, if known
  chat?: boolean; // whether the target was tuned for chat, if known
}

/** The request of an address; `wrong` names its invalid parts. */
interface Asked {
  preset: string | null;
  prompt: string | null;
  recording: string | null;
  theme: string | null;
  stage: boolean;
  view: string | null;
  reading: string | null; // "marks" or "text"
  settings: Record<string, Value>;
  wrong: string[];
}

/** The state in the page's address; `values` are the prompt and the controls, in their order. */
interface PageState {
  values: Value[];
  recording: string | null;
  theme: string | null;
  stage: boolean;
  view: string | null;
  reading?: string | null; // "text" if lanes show only the text
}

// The used part of Plotly.

interface Points {
  x: (number | string)[];
  y: (number | string | null)[];
}

interface ChartTrace extends Partial<Points> {
  name?: string;
  type?: string;
  mode?: string;
  showlegend?: boolean;
  orientation?: string;
  line?: { color: string; width: number; dash?: string };
  hovertemplate?: string;
  marker?: { color: string };
}

interface ChartFont {
  size: number;
  family?: string;
  color?: string;
}

interface ChartAxis {
  title: { text?: string; standoff?: number; font: ChartFont };
  showticklabels?: boolean;
  tickformat?: string;
  dtick?: number;
  range?: [number, number];
  fixedrange?: boolean;
}

interface ChartLayout {
  xaxis: ChartAxis;
  yaxis: ChartAxis;
  font: ChartFont;
  margin: Record<string, number>;
  title?: { text: string; x: number; font: ChartFont };
  width?: number;
  height?: number;
  showlegend?: boolean;
  legend?: { orientation: string; traceorder: string; y: number; yanchor: string; x: number };
  paper_bgcolor?: string;
  dragmode?: boolean;
}

interface Figure {
  data: ChartTrace[];
  layout: ChartLayout;
}

type RunFigures = Record<Theme, Record<LaneName, Record<string, Figure>>>;

interface PictureForm {
  format: string;
  width: number;
  height: number;
  scale: number;
}

interface Window {
  Plotly?: {
    react(node: HTMLElement, data: ChartTrace[], layout: ChartLayout, options: object): void;
    toImage(figure: Figure, form: PictureForm): Promise<string>;
  };
  specviz?: object; // the handles for tools, made in player.js
}

// The modules' types, by their global names.

type Actions = import("specviz/actions.js").Actions;
type LineChart = import("specviz/charts/lines.js").LineChart;
type Line = import("specviz/charts/lines.js").Line;
type Size = import("specviz/charts/lines.js").Size;
type LiveCharts = import("specviz/charts/live.js").LiveCharts;
type Point = import("specviz/charts/lines.js").Point;
type ChooseView = import("specviz/choose/view.js").ChooseView;
type Choosing = import("specviz/opening.js").Choosing;
type Side = import("specviz/compare/compare.js").Side;
type Notice = import("specviz/dom/notice.js").Notice;
type Balance = import("specviz/explain/numbers.js").Balance;
type Share = import("specviz/explain/numbers.js").Share;
type Shares = import("specviz/explain/numbers.js").Shares;
type Marked = import("specviz/explain/pictures.js").Marked;
type Step = import("specviz/explain/steps.js").Step;
type Explanation = import("specviz/facts/costs.js").Explanation;
type Metrics = import("specviz/facts/metrics.js").Metrics;
type Uncertainty = import("specviz/facts/uncertainty.js").Uncertainty;
type Panels = import("specviz/panels/panels.js").Panels;
type Card = import("specviz/race/card.js").Card;
type Doctor = import("specviz/controls/doctor.js").Doctor;
type Standing = import("specviz/race/lane-grid.js").Standing;
type Repeats = import("specviz/race/repeats.js").Repeats;
type Address = import("specviz/run/address.js").Address;
type Run = import("specviz/words/moment.js").Run;
type AutoReplay = import("specviz/run/timeline.js").AutoReplay;
type ShownRun = import("specviz/run/shown-run.js").ShownRun;
type Moment = import("specviz/run/slow-motion.js").Moment;
type Timeline = import("specviz/run/timeline.js").Timeline;
type Placed = import("specviz/share/film.js").Placed;
type Colours = import("specviz/share/paint.js").Colours;
type Shell = import("specviz/shell.js").Shell;
type Answer = import("specviz/stage/stage.js").Answer;
type Question = import("specviz/stage/stage.js").Question;
type Quiz = import("specviz/stage/stage.js").Quiz;
type Stage = import("specviz/stage/stage.js").Stage;
type View = import("specviz/view.js").View;
type Item = import("specviz/words/description.js").Item;
type Headline = import("specviz/words/verdict.js").Headline;
type Piece = import("specviz/words/markdown.js").Piece;
type Block = import("specviz/words/markdown.js").Block;
type Fragment = import("specviz/race/token.js").Fragment;
type TextState = import("specviz/race/token.js").TextState;
type Reading = import("specviz/words/markdown.js").Reading;
type ReadingMode = import("specviz/race/lane-grid.js").ReadingMode;
type PendingRun = import("specviz/words/moment.js").PendingRun;
type Place = import("specviz/words/reasons.js").Place;

/** The modules that are imported at their first use, by their names below "specviz/". */
interface Parts {
  "charts/figures.js": typeof import("specviz/charts/figures.js");
  "choose/view.js": typeof import("specviz/choose/view.js");
  "compare/compare.js": typeof import("specviz/compare/compare.js");
  "controls/doctor.js": typeof import("specviz/controls/doctor.js");
  "explain/explain.js": typeof import("specviz/explain/explain.js");
  "panels/panels.js": typeof import("specviz/panels/panels.js");
  "race/card.js": typeof import("specviz/race/card.js");
  "run/fetching.js": typeof import("specviz/run/fetching.js");
  "run/loading.js": typeof import("specviz/run/loading.js");
  "share/takeaway.js": typeof import("specviz/share/takeaway.js");
  "stage/questions.js": typeof import("specviz/stage/questions.js");
}

/** The controls of a served page. */
interface PageControls {
  readonly values: Value[];
  write(values: Record<string, Value>): void;
  adopt(wanted: Value[]): void;
  renew(before: string): void; // the page opens with another pair than `before`
}

/** The parts that are made first and need no other part. */
interface PageGround {
  root: HTMLElement; // the player
  server: Server;
  config: Config;
  address: Address;
  notice: Notice;
  shell: Shell;
}

/** The shown run and its playhead. */
interface PagePlay {
  shownRun: ShownRun;
  timeline: Timeline;
  replay: AutoReplay;
  runs: Run[]; // that were shown, the newest last
}

/** The parts that visitors see and press. */
interface PageSurface {
  view: View;
  stage: Stage;
  quiz: Quiz;
  repeats: Repeats;
  reading: ReadingMode;
  choosing: Choosing;
  controls?: PageControls;
  fetching?: import("specviz/run/fetching.js").Fetching; // while a pair is not here yet
}

/** All parts of the page, as player.js makes them. */
interface PageParts extends PageGround, PagePlay, PageSurface {}

/** The parts of the page that a module needs; it gets no others. */
type Needs<Part extends keyof PageParts> = Pick<PageParts, Part>;
