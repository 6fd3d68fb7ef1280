"""Rules by which byte-level tokenizers cut texts into words before they merge, by their names in
GGUF files (`tokenizer.ggml.pre`).

Names and rules are those of llama.cpp, which has them in one table:
https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp (`llama_vocab_pre_type`),
with the patterns that its own code reads in src/unicode.cpp. Patterns are applied in
turn, each to the pieces that the last one left: its matches become pieces, and so do the texts
between them. The patterns are written for Oniguruma, which the library `tokenizers` has.
"""

from __future__ import annotations

from typing import NamedTuple


class Split(NamedTuple):
    """A rule for cutting texts into words.

    composes: whether characters are composed first, as the published tokenizer does (llama.cpp does
    not). raw: whether pieces are plain text with marks for spaces, and bytes are pieces such as
    <0x0A>.
    """

    patterns: tuple[str, ...]  # applied in turn
    ignores_merges: bool = False  # whether a word that is a piece stays whole
    adds_bos: bool = False  # whether texts begin with BOS if the file does not say it
    composes: bool = False
    raw: bool = False


_ENDINGS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA_3 = rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN_2 = rf"{_ENDINGS}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN_35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SPACES_OF_CASCADE = (512, 256, 128, 64, 32, 16, 8, 4)
_CASCADE = "|".join(rf"\s{{{count}}}(?!\S)" for count in _SPACES_OF_CASCADE)
_JAIS_2 = (
    rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|{_CASCADE}|\s{{1,2}}(?!\S)|\s{{1}}"
)

# Letters other than a to z, and other than A to Z: only those two ranges have a case.
_UPPER = r"(?:(?=\p{L})[^a-z])"
_LOWER = r"(?:(?=\p{L})[^A-Z])"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}"
)
_SIGNS_WITH_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _cased(endings: str, digits: str, *, marks: bool = False) -> str:
    """Words that end where small letters change to large ones. marks: whether marks count as
    letters."""
    words = _CASED.replace("{0}", endings)
    if marks:
        words = words.replace(r"(?=\p{L})", r"(?=[\p{L}\p{M}])")
    return f"{words}|{digits}|{_SIGNS_WITH_SLASH}|{_SPACES}"


_TEKKEN = _cased("", r"\p{N}")
_GPT_4O = _cased(f"{_ENDINGS}?", r"\p{N}{1,3}")
_GRANITE_MULTI = _cased(f"{_ENDINGS}?", r"\p{N}{1,3}", marks=True)
_LETTERS = r"[\p{L}\p{M}]"
_ANY_CASE = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}*{_LETTERS}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}+{_LETTERS}*{_ENDINGS}?"
)
# Text before a number stays with its first digits.
_DIGITS_FROM_RIGHT = r"[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_TINY_AYA = (
    _DIGITS_FROM_RIGHT,
    rf"{_ANY_CASE}|\p{{N}}{{1,3}}|{_SIGNS_WITH_SLASH}|{_SPACES}",
)

# llama.cpp reads no space of another script as a letter.
_CJK_1 = r"[[一-龥\u0800-一가-\ud7ff]&&[^\s]]+"
_CJK_2 = "[一-龥\u3040-ゟ゠-ヿ]+"
_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_WORDS = rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    _CJK_2,
    rf"{_DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_SPARK = (
    r"\p{N}{1,3}",
    _CJK_2,
    rf"{_DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
    r"\p{N}",
)
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ"
    "Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟\u3001-。]+",
    r"\s+$",
    _CJK_1,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_1, r"\p{N}")
_YOUTU = (
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u303f︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
    rf"{_ANY_CASE}|\p{{N}}|{_SIGNS_WITH_SLASH}|{_SPACES}",
)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT_2, "[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")
_PORO = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT_2,
)
_HAN = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{2CEB0}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
_KIMI_K2 = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_ENDINGS}?|\p{{N}}{{1,3}}"
    rf"|{_SIGNS}|{_SPACES}"
)
_SUPERBPE = (r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))")
_BAILING = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_SIGNS}"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED_CODER = rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_UFAKZEKA = rf"{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_AFMOE = (
    _DIGITS_FROM_RIGHT,
    "[一-鿿㐀-䶿豈-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+",
    rf"{_DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_LINES = r"[^\n]+|[\n]+"
_EXAONE_MOE = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM_5 = (r"\p{N}{1,3}", rf"{_ENDINGS}|{_WORD}|\p{{N}}+|{_SIGNS}|{_SPACES}")

_DIGITS_FIRST = Split((r"\p{N}", _GPT_2))
_AS_GPT_2 = Split((_GPT_2,))
_AS_LLAMA_3 = Split((_LLAMA_3,), ignores_merges=True, adds_bos=True)
_AS_QWEN_2 = Split((_QWEN_2,))
_AS_GPT_4O = Split((_GPT_4O,))

DEFAULT = "default"

SPLITS = {
    DEFAULT: Split(_DEFAULT),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _AS_LLAMA_3,
    ),
    "jina-v5-nano": _AS_LLAMA_3,
    "minicpm5": Split(_MINICPM_5, ignores_merges=True),
    "jais-2": Split((_JAIS_2,)),
    "dbrx": Split((_LLAMA_3,)),
    "smaug-bpe": Split((_LLAMA_3,)),
    "glm4": Split((_LLAMA_3,), ignores_merges=True),
    "glm5": Split((_LLAMA_3,), ignores_merges=True),
    "chatglm-bpe": Split((_LLAMA_3,)),
    "deepseek-llm": Split(_DEEPSEEK_LLM),
    "deepseek-coder": Split(_DEEPSEEK_CODER),
    "deepseek-v3": Split(_DEEPSEEK_3),
    "hunyuan-dense": Split(_DEEPSEEK_3),
    "joyai-llm": Split(_DEEPSEEK_3),
    "hy_v4": Split(_DEEPSEEK_3),
    "spark2_5": Split(_SPARK),
    "youtu": Split(_YOUTU, ignores_merges=True),
    "falcon": Split(_FALCON),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"),
        _DIGITS_FIRST,
    ),
    "mellum2": _DIGITS_FIRST,
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"),
        _AS_GPT_2,
    ),
    **dict.fromkeys(
        ("jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum"),
        _AS_GPT_2,
    ),
    **dict.fromkeys(("modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe"), _AS_GPT_2),
    "qwen2": _AS_QWEN_2._replace(composes=True),
    "deepseek-r1-qwen": _AS_QWEN_2._replace(composes=True),
    **dict.fromkeys(
        ("kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"), _AS_QWEN_2
    ),
    "qwen35": Split((_QWEN_35,)),
    "laguna": Split((_LINES, _QWEN_2)),
    "ufakzeka": Split((_UFAKZEKA,)),
    "poro-chat": Split((_PORO,)),
    "bloom": Split((_PORO,)),
    "gpt3-finnish": Split((_PORO,)),
    "viking": Split((_PORO, r"\p{N}")),
    "tekken": Split((_TEKKEN,), ignores_merges=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _AS_GPT_4O),
    "granite-embed-multi-97m": Split((_GRANITE_MULTI,), ignores_merges=True),
    "tiny_aya": Split(_TINY_AYA),
    "cohere2moe": Split(_TINY_AYA),
    "chameleon": Split(_CHAMELEON, adds_bos=True),
    "kimi-k2": Split((_KIMI_K2,)),
    "superbpe": Split(_SUPERBPE),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), Split((_BAILING,))),
    "seed-coder": Split((_SEED_CODER,)),
    "exaone-moe": Split((_EXAONE_MOE,)),
    "afmoe": Split(_AFMOE),
    "gemma4": Split((_LINES,), adds_bos=True, raw=True),
    "granite-embed-multi-311m": Split((_LINES,), adds_bos=True, raw=True),
    "sarvam-moe": Split((_LINES,), raw=True),
    "mmbert": Split((_LINES,), raw=True),
}
"""Rules by their names in files."""
