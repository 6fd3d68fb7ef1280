// A sweep in the form of specviz/page/sweeps.py, which contains specviz/measure/sweep/types.py.

interface Configuration {
  drafter: string;
  gamma: number;
  policy: string;
  temperature: number;
}

interface Estimate {
  value: number;
  low: number | null; // if there is only one prompt
  high: number | null;
}

interface SweepRow {
  key: string;
  configuration: Configuration;
  status: "planned" | "predicted" | "measured" | "eliminated" | "left out";
  mark: "best" | "tied" | "open" | null;
  predicted: {
    exact: boolean;
    tau: number;
    alpha: number | null;
    efficiency: number | null;
    speedup: number | null;
  } | null;
  measured: {
    runs: number;
    prompts: number;
    rate: { median: number; low: number; high: number };
    alone_rate: { median: number; low: number; high: number };
    speedup: Estimate | null;
    alpha: number | null;
    efficiency: number | null;
    tau: number | null;
    tau_predicted: number | null;
    c: number | null;
    doubts: number;
  } | null;
  memory: number | null; // bytes
  note: string;
}

interface EngineSettings {
  engine: string;
  version: string;
  source: string;
  text: string;
  note: string;
}

interface Recommendation {
  temperature: number;
  answer: "speculate" | "do not speculate" | "cannot tell";
  headline: string;
  reasons: string[];
  doubt: string;
  best: Configuration | null;
  settings: EngineSettings[];
  prompt?: string; // of the sweep, for a race with the best row
}

interface SweptMachine {
  pair: string;
  target: string;
  draft: string | null;
  device: string;
  processor: string;
  dtype: string;
  form: string;
  threads: number;
  versions: Record<string, string>;
  date: string;
}

interface SweepProgress {
  done: number;
  total: number;
  seconds_left: number;
  now: string;
}

interface SweepFigure {
  title: string;
  data: ChartTrace[];
  layout: ChartLayout;
}

/** The news of a sweep from the requested number. */
interface SweepNews {
  id?: string;
  over: boolean;
  next?: number; // the number of the next news
  status?: string;
  error?: string | null;
  remark?: string | null;
  kinds?: Record<string, number>;
  pieces?: number;
  seconds?: number;
  now?: string; // its first step, until there is progress
  progress?: SweepProgress | null;
  rows?: SweepRow[];
  recommendations?: Recommendation[];
  machine?: SweptMachine | null;
  link?: string;
  spent?: number;
  stopped?: boolean;
  figures?: Record<Theme, Record<string, SweepFigure>>;
  whole?: { schema: number } & Record<string, unknown>;
  csv?: string;
}

/** Everything of a sweep that has arrived. */
interface SweepState extends Omit<SweepNews, "rows" | "over"> {
  over: boolean;
  rows: SweepRow[];
  wish: SweepWish;
  beganAt?: number; // ms, by the browser's clock
  interrupted?: boolean;
}

/** The request of a sweep. prompts: the visitor's own; null for the built-in set. */
interface SweepWish {
  naming: Record<string, Value>;
  drafters: string[];
  gammas: number[];
  policies: string[];
  temperatures: number[];
  kinds: string[];
  prompts: [kind: string, text: string][] | null;
  length: number;
  seconds: number;
}

/** The choices of a sweep. usual: those that are chosen at first. */
interface ChooseConfig {
  kinds: Record<string, number>; // number of prompts by kind, for the page's first pair
  kindsOf: Record<string, Record<string, number>>; // the same for other pairs, where it differs
  drafters: Record<string, string>; // labels by name
  policies: Record<string, string>;
  gammas: number[];
  temperatures: number[];
  seconds: number[];
  lengths: number[];
  usual: { drafters: string[]; gammas: number[]; policies: string[]; temperatures: number[]; seconds: number; length: number };
  mostRows: number;
  mostPrompts: number;
  mostFile: number; // bytes
}

interface FoundPrompts {
  error?: string;
  prompts?: [kind: string, text: string][];
  kinds?: Record<string, number>;
  left_out?: number;
}

interface Config {
  choose?: ChooseConfig | null;
}

interface Server {
  begin_sweep?(wish: SweepWish): Promise<SweepNews>;
  ask_job?(asked: { id: string; seq: number; hidden: boolean }): Promise<SweepNews>;
  find_prompts?(file: Blob, name: string): Promise<FoundPrompts>;
}
