"""Wrong versions of specviz, each a small change that some test must notice.

A mutant names the function or class that it changes, not the file: a function may move. Its old
text must stand there exactly once.
"""

# ruff: noqa: E501  -- a table: one mutant, one line

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """where: the function, class or method ("Class.method") that holds the text `old`, which `new`
    replaces. tests: names of test files without "test_" and ".py", the likeliest to notice first.
    """

    area: str
    where: str
    old: str
    new: str
    tests: str


DRAWS = "sampling numpy_path paths exactness"
RULES = "verdicts exactness numpy_path"
LOOPS = "loop ends exactness"
CACHES = "loop paths exactness"
BLOCKS = "packed_weights"
EDITED = "malformed_recordings recording rerun real_runs trace"

MUTANTS = [
    # From logits to distributions, and draws from them
    Mutant("sampling", "probabilities", "logits / temperature", "logits", DRAWS),
    Mutant("sampling", "probabilities", "settings.top_p < 1.0", "settings.top_p < 0.5", DRAWS),
    Mutant("sampling", "greedy_ids", "logits >= top - TIE * top.abs()", "logits >= top", DRAWS),
    Mutant("sampling", "_truncated", "before < top_p * whole", "before <= top_p", DRAWS),
    Mutant("sampling", "_truncated", "min(top_k, vocab) or vocab", "vocab", DRAWS),
    Mutant("sampling", "_truncated", "level.cumsum(-1) <= spare", "level.cumsum(-1) >= 0", DRAWS),
    Mutant("sampling", "_truncated", "return p / p.sum(-1, keepdim=True)", "return p", DRAWS),
    Mutant("sampling", "draw", "right=True", "right=False", DRAWS),
    Mutant("sampling", "residual", "(p - q).clamp_(min=0.0)", "(q - p).clamp_(min=0.0)", DRAWS),
    Mutant("sampling", "drawn_id", '"right"', '"left"', DRAWS),
    Mutant("sampling", "greedy_id", "best and logits[:best].max() >= level", "False", DRAWS),
    # What keeps a draft
    Mutant("verdicts", "decide", "u * q_drafted < p_drafted", "u * q_drafted <= p_drafted", DRAWS),
    Mutant("verdicts", "decide", "u * q_drafted < p_drafted", "u < p_drafted", DRAWS),
    Mutant("verdicts", "decide", "keep.long().cumprod(0).sum()", "keep.long().sum()", DRAWS),
    Mutant("verdicts", "decide", "(p_last - q_last).clamp_(min=0.0)", "p_last.clone()", DRAWS),
    Mutant(
        "verdicts",
        "decided",
        "uniform * q.item(position, token_id) < p.item(position, token_id)",
        "uniform * q.item(position, token_id) <= p.item(position, token_id)",
        "numpy_path paths exactness",
    ),
    Mutant(
        "verdicts",
        "decided",
        "np.subtract(p[accepted], q[accepted])",
        "np.subtract(p[accepted], 0.0)",
        "numpy_path paths exactness",
    ),
    Mutant(
        "verdicts",
        "decided_greedily",
        "return accepted, argmax[accepted]",
        "return accepted, argmax[-1]",
        "numpy_path loop exactness",
    ),
    Mutant("verdicts", "block_numbers", "(product * ratio).clamp(max=1.0)", "product * ratio", RULES),
    Mutant("verdicts", "block_numbers", "short = 1.0 - weight", "short = 1.0", RULES),
    Mutant("verdicts", "decide_block", "u < threshold", "u < weight", RULES),
    Mutant("verdicts", "decide_block", "before.float() * p_last - q_last", "p_last - q_last", RULES),
    Mutant("verdicts", "decide_exact_match", "== drafted) & judged", "== drafted) | judged", RULES),
    Mutant("verdicts", "decide_exact_match", ".long().cumprod(0).sum()", ".long().sum()", RULES),
    Mutant("verdicts", "typical_thresholds", "torch.exp(-entropy)", "torch.exp(entropy)", RULES),
    Mutant("verdicts", "decide_by_draws", "< y.p - q.item(accepted, y.id)", "< y.p", "drawn"),
    Mutant("verdicts", "decide_by_draws", "if not draw *", "if draw *", "drawn"),
    Mutant("verdicts", "exact_match_shown", "(p[: len(drafted)] * q).sum(-1)", "q.sum(-1)", "verdicts real_runs"),
    # The loop of a lane, and the race
    Mutant("loop", "LaneRun.end_reason", "if len(self.ids) >= self.budget", "if False", LOOPS),
    Mutant("loop", "SharedPrompt.read", "not engine.take_over(self._engine)", "False", "race"),
    Mutant("loop", "LaneRun.prefill", " - spent + seconds[\"target\"]", "", "race"),
    Mutant("loop", "Passes.copy_cache", "other._values[:, :, :length]", "0", "compiled"),
    Mutant("loop", "CompiledEngine.take_over", "or other._model is not self._model", "", "compiled"),
    Mutant("loop", "CompiledEngine.take_over", "not np.array_equal(other._slots, self._slots)", "False", "compiled"),
    Mutant("loop", "LaneRun.__post_init__", "self.context + 1", "self.context", LOOPS),
    Mutant("loop", "LaneRun.gamma", "self.most - len(self.ids) - 1", "self.most - len(self.ids)", LOOPS),
    Mutant("loop", "LaneRun.gamma", "self.most - len(self.ids) - 1", "self.most - len(self.ids) - 2", LOOPS),
    Mutant("loop", "LaneRun.commit", "if not self.settings.ignore_eos:", "if True:", LOOPS),
    Mutant("loop", "LaneRun.commit", "emitted[: ends[0] + 1]", "emitted[: ends[0]]", LOOPS),
    Mutant("loop", "StopTexts.completed_at", "max(map(len, self._stops)) - 1", "0", LOOPS),
    Mutant("loop", "LaneRun._round", "done - began", "done - drafted", LOOPS + " race metrics"),
    Mutant("loop", "interleaved", "min(ready", "max(ready", "race"),
    Mutant("loop", "end_of", "if not settings[BASELINE].greedy:", "if False:", "race lanes"),
    Mutant("loop", "agreement_of", "range(compared)", "range(compared - 1)", "race lanes"),
    Mutant("loop", "check_shared", "for field in SHARED:", "for field in SHARED[1:]:", "lanes race"),
    # Caches and what is taken back from them
    Mutant("caches", "LaneRun.commit", "self.target.rollback(len(self.ids) - 1)", "self.target.rollback(len(self.ids) - 1 - (len(emitted) > 1))", CACHES),
    Mutant("caches", "LaneRun.commit", "self.drafter.rollback(len(self.ids) - 1)", "self.drafter.rollback(len(self.ids))", CACHES),
    Mutant("caches", "EagerEngine.rollback", "self._cache.crop(length - self.length)", "pass", CACHES + " families"),
    Mutant("caches", "EagerEngine.__init__", "self._cache.activate_past_recording()", "pass", "families architectures"),
    Mutant("caches", "check_rollback", "if not cache.is_croppable or cache.get_seq_length() != length:", "if False:", "loop families"),
    Mutant("caches", "CompiledEngine.rollback", "self.length = length", "self.length = max(length, self.length - 1)", "compiled paths loop"),
    Mutant("caches", "Passes.reserve", "keys[..., :used] = self._keys[..., :used]", "pass", "compiled paths"),
    Mutant("caches", "CompiledEngine.draft", "self.length = end + n - 1", "self.length = end + n", "compiled paths loop"),
    Mutant("caches", "EarlyExitDrafter.draft", "self._path.engine.rollback(begin)", "pass", "drafters paths"),
    Mutant("caches", "HeadDrafter.rollback", "self._received + 1", "self._received + 2", "head mtp"),
    Mutant("caches", "HeadDrafter.rollback", "[: length - self._received]", "[: length - self._received - 1]", "head mtp"),
    Mutant("caches", "HeadEngine.rollback", "length - 1", "length", "head"),
    Mutant("caches", "StateReader.prefill", "if len(ids) > 1:", "if len(ids) > 0:", "head mtp"),
    # Where drafts come from
    Mutant("drafters", "NgramIndex.copied", "while len(copy) < count:", "while False:", "drafters"),
    Mutant("drafters", "NgramHeadDrafter.rollback", "length - self._begin", "length - self._begin + 1", "head"),
    Mutant("drafters", "NgramHeadDrafter.rollback", "self._size = 0", "pass", "head"),
    Mutant("drafters", "NgramIndex.extend", "if position >= size:", "if position > size:", "drafters"),
    Mutant("drafters", "ModelDrafter.room", "self._context - length + 1", "self._context - length", "ends loop drafters"),
    Mutant("drafters", "chance_of_likeliest", "share * size / (size + 1)", "share", "suffix"),
    Mutant("drafters", "SuffixDrafter.__init__", "self._index.separate()", "pass", "suffix"),
    Mutant("drafters", "_drawn_index", "uniform * followers.total", "uniform", "suffix"),
    Mutant("drafters", "SuffixIndex.followers", "ranks.index(max(ranks))", "counts.index(max(counts))", "suffix"),
    Mutant("drafters", "SharedTokensDrafter._drafted", "draft_logits[:, self._draft_ids]", "draft_logits[:, self._target_ids.clamp(max=draft_logits.shape[-1] - 1)]", "translation"),
    Mutant("drafters", "DraftText.extend", "if waiting[:1] == [run] else []", "", "translation"),
    Mutant("drafters", "TranslatedDrafter.draft", "known + kept, self.engine", "known + len(proposed), self.engine", "translation"),
    Mutant("drafters", "shared_tokens", "target_end not in pairs and", "False and", "translation"),
    Mutant("drafters", "Spelling.ids", "ids[text] in self.byte_ids", "False", "translation"),
    Mutant("drafters", "TextDrafter._encoded", "if token_id < self._run.vocab", "if token_id < self._run.vocab - 40", "translation"),
    # How many tokens a round drafts
    Mutant("policy", "HeuristicGamma.observe", "if not drafted:", "if False:", "policy loop"),
    Mutant("policy", "HeuristicGamma.observe", "2 if accepted == drafted else -1", "2 if accepted else -1", "policy"),
    Mutant("policy", "OptimalGamma.observe", "accepted + (accepted < drafted)", "drafted", "policy"),
    Mutant("policy", "OptimalGamma.observe", "self._idle >= PROBE", "False", "policy"),
    Mutant("policy", "OptimalGamma.__init__", "self._judged = FIRST_ACCEPTED", "self._judged = 0.0", "policy"),
    Mutant("policy", "predicted_tau", "alpha ** (gamma + 1)", "alpha ** gamma", "policy metrics"),
    Mutant("policy", "best_gamma", "1 + gamma * extra_token", "1.0", "policy"),
    # Rounds as tokens with text
    Mutant("tokens", "tokens_of", "ended = len(emitted) <= accepted", "ended = len(emitted) < accepted", "loop ends real_runs"),
    Mutant("tokens", "texts_of", "fork = stream.copy()", "fork = stream", "detokenize loop real_runs"),
    Mutant("tokens", "Views.final", 'self._top("q", i) if corrected', 'self._top("q", 0) if corrected', "loop real_runs paths"),
    Mutant("tokens", "_shown_numbers", "torch.minimum(p[:-1], draft.q)", "torch.minimum(p[1:], draft.q)", "loop real_runs paths"),
    Mutant("detokenise", "TextStream.push", "if whole.endswith(UNFINISHED):", "if False:", "detokenize loop"),
    Mutant("detokenise", "TextStream.push", "self._ids = self._ids[self._settled :]", "self._ids = [token_id]", "detokenize"),
    Mutant("detokenise", "TextStream.copy", "list(self._ids)", "self._ids", "detokenize loop"),
    Mutant("detokenise", "Pieces.__missing__", "[*self._anchor, token_id]", "[token_id]", "detokenize"),
    # What is counted from rounds
    Mutant("metrics", "compute_metrics", 'counts["accepted"] + counts["rejected"]', "len(drafted)", "metrics"),
    Mutant("metrics", "_chance", "if token.chance is not None:", "if False:", "metrics verdicts"),
    Mutant("metrics", "compute_metrics", "ratio(sum(len(r.emitted) for r in timed_rounds), len(timed_rounds))", "ratio(sum(len(r.emitted) for r in rounds), len(rounds))", "metrics watched"),
    Mutant("metrics", "compute_metrics", "outcomes[outcome] for", "len(outcomes) for", "metrics"),
    Mutant("metrics", "_cost_ratio", "ratio(sum(r.verify_seconds for r in baseline_rounds), len(baseline_rounds))", "ratio(sum(r.verify_seconds for r in rounds), len(rounds))", "metrics"),
    Mutant("metrics", "_speedup", "baseline / speculative", "speculative / baseline", "metrics"),
    Mutant("metrics", "_alpha_by_position", 'judged[position] += token.outcome in ("accepted", "rejected")', "judged[position] += 1", "metrics"),
    Mutant("metrics", "compute_metrics", "len(r.drafted) * c + 1", "len(r.drafted) * c", "metrics"),
    Mutant("metrics", "_doubt", "price < LEAST_PRICE", "price < 0.1", "uncertainty"),
    Mutant("metrics", "rounds_of", "max(before, at - began)", "at", "watched"),
    Mutant("metrics", "_only_match", "if len(whole_ways) != 1:", "if len(whole_ways) < 1:", "watched"),
    # Recordings of strangers
    Mutant("recordings", "read_recording", "len(raw) > most_packed", "False", "malformed_recordings recording"),
    Mutant("recordings", "read_recording", 'data.get("digest") not in (None, digest_of(data))', "False", EDITED),
    Mutant("recordings", "_unpacked", "raw, most + 1", "raw", "malformed_recordings recording"),
    Mutant("recordings", "_unpacked", "if unpacker.unused_data:", "if False:", "malformed_recordings recording"),
    Mutant("recordings", "_parsed", "> MOST_VALUES", "> 100 * MOST_VALUES", "malformed_recordings recording"),
    Mutant("recordings", "digest_of", "parse_int=float", "parse_int=int", "trace recording page_recordings"),
    Mutant("recordings", "_replace", "beside.replace(path)", "path.write_bytes(content)", "trace recording"),
    Mutant("recordings", "harmless", "safe = _HTML.sub(", "safe = re.sub('$^', ", EDITED),
    Mutant("recordings", "_token_fault", "(u < p / q * rounding) != is_accepted", "False", EDITED),
    Mutant("recordings", "_token_fault", "if q == 0.0:", "if False:", EDITED),
    Mutant("recordings", "_counts_fault", "if r.last is None or r.last.outcome != expected:", "if False:", EDITED),
    Mutant("recordings", "_with_last", "emitted[: len(accepted)] != accepted or", "", "schema_1"),
    Mutant("recordings", "_with_lanes", "(lanes.get(first), drafts.get(first)) != (settings, draft)", "False", "schema_1"),
    Mutant("recordings", "_with_agreements", "next(iter(lanes.values()), None) != agreement", "False", "schema_1"),
    Mutant("recordings", "_check_rounds", "emitted[r.lane] > settings.max_new_tokens", "False", EDITED),
    Mutant("recordings", "_times_fault", "if r.clock < begin:", "if False:", EDITED),
    Mutant("recordings", "_times_fault", "abs(begin + seconds - r.clock)", "abs(0.0)", EDITED),
    Mutant("recordings", "_check_rounds", "len(r.drafted) > most_drafted", "False", EDITED),
    Mutant("recordings", "_check_order", "r.clock < before.clock", "False", EDITED),
    Mutant("recordings", "_check_agreement", "(recorded.identical, recorded.compared) !=", "False and (recorded.identical, recorded.compared) !=", EDITED),
    Mutant("recordings", "_check_end", 'counted["accepted"] > counted["drafted"]', "False", "watched"),
    Mutant("recordings", "_token_fault", "if is_drawn and", "if False and", "remote"),
    Mutant("recordings", "_watched_token_fault", "token != Token(token.id, token.text, token.outcome)", "False", "watched"),
    Mutant("recordings", "_token_changes", "abs(was - now) > rounding", "False", "rerun"),
    Mutant("recordings", "_token_changes", "if was == now:", "if True:", "rerun"),
    Mutant("recordings", "_is_within", "same.text != choice.text", "False", "rerun"),
    Mutant("recordings", "_rounding", "max(LEAST_ROUNDING, min(", "max(0.2, min(", "rerun"),
    # What a sweep measures next, and what it predicts
    Mutant("sweep", "due", "now.time_for <= len(owed) + 1", "False", "agenda"),
    Mutant("sweep", "_scouting", "[piece for piece in owed if piece.question < question] or pieces", "pieces", "agenda"),
    Mutant("sweep", "_confirming", "for key in rotated(keys, turn)", "for key in keys", "agenda"),
    Mutant("sweep", "_confirming", "Piece(key, question, now.ran[key, question])", "Piece(key, question)", "agenda"),
    Mutant("sweep", "_is_racing", 'row.status == "eliminated"', "False", "agenda"),
    Mutant("sweep", "_owed", "ENOUGH - ran", "1", "agenda"),
    Mutant("sweep", "Costs.speedup", "np.interp(1 + counts.drafted,", "np.interp(counts.drafted,", "intervals"),
    Mutant("sweep", "Costs._by_width", "blocks[-1].cost > block.cost", "False", "intervals"),
    Mutant("sweep", "simulated_rounds", "emitted=left)", "emitted=left + 1)", "prediction"),
    Mutant("sweep", "simulated_rounds", "min(room, text.limit - length)", "room", "prediction"),
    Mutant("sweep", "_States.show", "self._whole[self._shown :]", "self._whole[:length]", "prediction"),
    # What visitors may reach
    Mutant("guard", "is_readable", "bool(PUBLIC.fullmatch(path)) and ", "", "security strangers"),
    Mutant("guard", "_plain", "and not path.is_symlink()", "", "security strangers"),
    Mutant("guard", "_plain", 'if not path.name.startswith(".")', "", "security strangers"),
    Mutant("guard", "Sessions.is_read", "session.streams > session.gone", "True", "sessions strangers"),
    Mutant("guard", "Sessions.arriving", "of_client + self._arriving[client] >= self._most", "False", "sessions strangers"),
    Mutant("guard", "Sessions._caught_up", "session.unread >= MOST_UNREAD", "False", "sessions strangers"),
    Mutant("guard", "Password.check", "or self.is_entered(scope)", "or True", "security strangers"),
    Mutant("guard", "Password.is_right", "return all(same)", "return any(same)", "security strangers"),
    Mutant("guard", "Sites.admit", "if origin.lower() not in self.origins:", "if False:", "sites security"),
    Mutant("guard", "Sites._is_name", "return bool(_PRIVATE.fullmatch(name))", "return True", "sites security"),
    Mutant("guard", "client_of", "(host, 64)", "(host, 128)", "security strangers visitors"),
    Mutant("guard", "Bodies.read", "if size > most:", "if False:", "security strangers"),
    Mutant("guard", "Bodies._take_place", "self._large[client] >= LARGE_OF_CLIENT", "False", "security strangers visitors"),
    Mutant("guard", "_Event", "list[Plain]", "list[Any]", "security strangers"),
    Mutant("guard", "_Named", "session_hash: Name", "session_hash: str", "security strangers"),
    Mutant("guard", "_structure", "plain.count(b'\"') > 2 * MOST_STRINGS", "False", "security strangers"),
    # Weights as files hold them
    Mutant("weights", "_nibbles", "b.lshr(raw, integers(4))", "b.lshr(raw, integers(3))", BLOCKS),
    Mutant("weights", "_group_scales", "b.fneg(_half(b, step, 2))", "_half(b, step, 2)", BLOCKS),
    Mutant("weights", "_group_scales", "b.lshr(first, two)", "b.lshr(first, four)", BLOCKS),
    Mutant("weights", "_q6_k", "4 * (2 * group + half)", "4 * (2 * group)", BLOCKS),
    Mutant("weights", "_q5_1", "_repeated(16)", "_repeated(8)", BLOCKS),
    Mutant("weights", "q5_0_codes", "_repeated(-16)", "_repeated(-8)", BLOCKS),
    Mutant("weights", "widen_codes", "BLOCK_BYTES[Q5_0]", "BLOCK_BYTES[Q8_0]", BLOCKS),
    Mutant("weights", "_halves_apart", "np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)", "rows", "packed"),
    Mutant("weights", "_fill", "/= weights.tensors", "*= weights.tensors", "packed"),
    Mutant("weights", "unpacked", ", dtype=torch.float32", "", "read_ahead"),
    Mutant("weights", "ReadAhead.begin", "need > self._free", "False", "read_ahead"),
    Mutant("weights", "_check_tensors", "wanted.get(name) != shape", "False", "packed"),
    Mutant("weights", "_check_scales", "(high_bytes & 0x7C) == 0x7C", "high_bytes == 0x7C", "packed"),
    Mutant("weights", "end_ids_of", "sorted(ids | spelled_ends(added_pieces(header)))", "sorted(ids)", "packed"),
    Mutant("weights", "_holds_its_model", "held == wanted", "True", "packed"),
    Mutant("weights", "_HeaderFacts", "if self.stores_tied_apart", "if False", "examine_headers"),
    Mutant("weights", "_byte_level", " if kind != UNUSED", "", "packed"),
    # Which files of models are read
    Mutant("files", "is_published", "== file.sha256", "!= ''", "fetch"),
    Mutant("files", "_memory_of", "|{status.st_mtime_ns}", "", "fetch"),
    Mutant("files", "_has_size", "path.stat().st_size == file.bytes", "True", "fetch table"),
    Mutant("files", "_finish", "if not (has_size and", "if False and (has_size and", "fetch"),
    Mutant("files", "_received", "if status == 200:", "if False:", "fetch"),
    Mutant("files", "_received", 'headers["Range"] =', 'headers["Unread"] =', "fetch"),
    Mutant("files", "_fetched_wheel", "if zipfile.is_zipfile(path)", "", "fetch"),
    Mutant("files", "fetch_plan", "MODELS.read() is not None and", "False and", "fetch"),
    Mutant("files", "first_pair", " and at_hand(pair)", "", "table"),
    # What is told of texts, waits and rows
    Mutant("told", "printable", "return escaped(", "return str(", "console"),
    Mutant("told", "_degraded", '_PLAIN.get(sign, "?")', "sign", "console"),
    Mutant("told", "RunQueue.status_of", "other.session != job.session", "True", "visitors"),
    Mutant("told", "expected_whole", "(time.monotonic() - job.begun) / share", "time.monotonic() - job.begun", "visitors"),
    Mutant("told", "warm_up", "check_stop()", "pass", "faults"),
    Mutant("told", "fitted", "usual - statistics.fmean", "0 * statistics.fmean", "intervals"),
    Mutant("told", "marked", "key in ahead or ", "", "intervals"),
    Mutant("told", "_pays", 'row.mark in ("best", "open")', 'row.mark == "best"', "engine_settings"),
    Mutant("told", "gguf_file", "quote(model.gguf or placeholder)", "model.gguf or placeholder", "engine_settings"),
    Mutant("told", "_fault", "parameter.default is Parameter.empty", "False", "api"),
]  # fmt: skip
