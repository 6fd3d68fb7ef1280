"""Files of prompts, valid and invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentences import Sentences

from specviz.base.errors import PromptError
from specviz.core.messages import Message
from specviz.pairs.prompts import (
    BUILTIN_SET,
    CODE,
    COMPLETION,
    OF_A_SWEEP,
    QUESTIONS,
    builtin_prompts,
    messages_file,
    prompts_file,
    prompts_for,
    prompts_from,
)
from specviz.runs.recording import answer_to


def read(text: str, name: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in prompts_from(text.encode(), name)]


def test_every_form_is_read():
    assert read("one\n\n  \ntwo\n", "a.txt") == [("prompts", "one"), ("prompts", "two")]
    assert read('["one", "two"]', "a.json") == [("prompts", "one"), ("prompts", "two")]
    assert read('{"code": ["x"], "chat": ["y"]}', "a.json") == [("code", "x"), ("chat", "y")]
    bench = [
        {"question_id": 81, "category": "writing", "turns": ["first", "second"]},
        {"question_id": 82, "category": "math", "turns": ["third"], "reference": []},
    ]
    lines = "\n".join(map(json.dumps, bench))
    for name in ("question.jsonl", "question"):
        assert read(lines, name) == [("writing", "first"), ("math", "third")]
    assert read('{"prompt": "p", "kind": "k"}\n"bare"', "a.jsonl") == [
        ("k", "p"),
        ("prompts", "bare"),
    ]
    assert read("\ufeffone", "a.txt") == [("prompts", "one")]
    assert read('{"prompt": "only"}', "a.json") == [("prompts", "only")]


SEPARATORS = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg\x1dh\x1ei"
"""Characters that end a line for `str.splitlines`, but not in a file."""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_prompt_may_hold_any_separator_that_ends_no_line(end: str):
    two = [("prompts", SEPARATORS), ("prompts", "next")]
    assert read(f"{SEPARATORS}{end}next{end}", "a.txt") == two
    rows = [json.dumps({"prompt": text}, ensure_ascii=False) for text in (SEPARATORS, "next")]
    assert read(end.join(rows), "a.jsonl") == read(end.join(rows), "this file") == two
    table = f"prompt,category{end}{SEPARATORS},x{end}next,x{end}"
    assert [text for _, text in read(table, "a.csv")] == [SEPARATORS, "next"]
    assert [text for _, text in read(table, "this file")] == [SEPARATORS, "next"]


def test_the_line_of_a_fault_is_the_line_that_an_editor_shows(sentences: Sentences):
    with sentences.raises(PromptError):
        read(f'"{SEPARATORS[:4]}"\nx', "a.jsonl")


HELPFUL = {"role": "system", "content": "Be helpful."}


@pytest.mark.parametrize(
    ("entry", "prompt"),
    [
        ({"messages": [HELPFUL, {"role": "user", "content": "Why?"}]}, "Why?"),
        (
            {
                "messages": [
                    {"role": "user", "content": "Why?"},
                    {"role": "user", "content": "How?"},
                ]
            },
            "How?",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is "},
                            {"type": "image_url", "image_url": {"url": "data:,"}},
                            {"type": "text", "text": "this?"},
                        ],
                    }
                ]
            },
            "What is this?",
        ),
        ({"conversations": [{"from": "human", "value": "Why?"}]}, "Why?"),
        ({"prompt": [HELPFUL, {"role": "user", "content": "Why?"}]}, "Why?"),
        ({"instruction": "Sort these.", "input": "b, a", "output": "a, b"}, "Sort these.\n\nb, a"),
        ({"instruction": "Write.", "input": "", "output": "x"}, "Write."),
        ({"question": "1 + 1?", "answer": "2"}, "1 + 1?"),
    ],
)
def test_sets_for_fine_tuning_are_read(entry: dict, prompt: str):
    row = json.dumps({**entry, "category": "chat"})
    assert read(row, "a.jsonl") == read(row, "this file") == [("chat", prompt)]
    assert read(f"[{row}]", "a.json") == [("chat", prompt)]
    assert read(json.dumps(entry), "a.json") == [("prompts", prompt)]


def test_a_table_is_read_by_its_header():
    quoted = 'id,Prompt,Category\r\n1,"one, ""two""\nthree",prose\r\n\r\n2,four,code\r\n'
    expected = [("prose", 'one, "two"\nthree'), ("code", "four")]
    assert read(quoted, "a.csv") == expected
    assert read("\ufeff" + quoted, "a.CSV") == expected
    assert read("prompt;kind\nWhy, please?;chat\n", "a.csv") == [("chat", "Why, please?")]
    assert read("question\tanswer\nWhy?\tSo.\n", "a.tsv") == [("prompts", "Why?")]
    assert read("prompt\none\ntwo\n", "a.csv") == [("prompts", "one"), ("prompts", "two")]
    # Pasted text has no suffix, and a text may begin with the word.
    assert read("prompt,category\nWhy?,chat\n", "this file") == [("chat", "Why?")]
    assert [text for _, text in read("prompt\nanother", "this file")] == ["prompt", "another"]
    assert read("Text, please", "this file") == [("prompts", "Text, please")]


def test_the_built_in_set_has_every_kind():
    kinds = [one.kind for one in builtin_prompts()]
    assert set(kinds) == {"prose", "dialogue", "a list", "repetition", "copying"}
    assert min(kinds.count(kind) for kind in kinds) >= 3


BAD_FILES = {
    "nothing": (b"", "a.txt"),
    "blank lines": (b" \n\n", "a.json"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00", "a.txt"),
    "a zero byte": (b"text\x00more", "a.txt"),
    "4 MB and a byte": (b"x" * (OF_A_SWEEP.bytes + 1), "a.txt"),
    "a line of a million characters": (b"x" * 1_000_000, "a.txt"),
    "a list of numbers": (b"[1, 2]", "a.json"),
    "an empty list": (b"[]", "a.json"),
    "an empty object": (b"{}", "a.json"),
    "an object of no lists": (b'{"a": 1}', "a.json"),
    "broken JSON": (b"{broken", "a.json"),
    "a broken line": (b'{"prompt": "x"}\n{broken', "a.jsonl"),
    "turns": (b'{"turns": []}', "a.jsonl"),
    "a list as prompt": (b'{"prompt": ["x"]}', "a.jsonl"),
    "a hundred thousand lists": (b"[" * 100_000, "a.json"),
    "a table of other columns": (b"id,words\n1,one\n", "a.csv"),
    "a table that is none": (b"Why is this?\n", "a.csv"),
    "a table of a header": (b"prompt,category\n", "a.csv"),
    "an empty cell": (b"id,prompt\n1,one\n2,\n", "a.csv"),
    "an empty cell next to a number of the row": (b",prompt\n1,one\n2,\n", "a.csv"),
    "a short row": (b"id,prompt\n1\n", "a.csv"),
    "a vast cell": (b"prompt\n" + b"x" * 200_000, "a.csv"),
    "a system turn alone": (b'{"messages": [{"role": "system", "content": "x"}]}', "a.jsonl"),
    "a number as turn": (b'{"messages": [{"role": "user", "content": 5}]}', "a.jsonl"),
    "2001 prompts": (b"a\n" * 2001, "a.txt"),
}


@pytest.mark.parametrize("file", BAD_FILES)
def test_a_bad_file_gets_one_sentence_that_says_what_to_do(file: str, sentences: Sentences):
    raw, name = BAD_FILES[file]
    with sentences.raises(PromptError) as error:
        prompts_from(raw, name)
    sentence = str(error.value)
    assert sentence.count(". ") == 0 and ": " in sentence and len(sentence) < 250


def test_a_vast_file_is_not_read(tmp_path: Path, sentences: Sentences):
    vast = tmp_path / "vast.txt"
    with vast.open("wb") as file:
        file.truncate(100_000_000)
    with sentences.raises(PromptError):
        prompts_file(vast)
    with sentences.raises(PromptError):
        prompts_file(tmp_path / "missing.txt")


def test_a_pair_for_chat_has_questions_of_eight_kinds():
    own = builtin_prompts("smollm2-135m")
    assert len({one.kind for one in own}) == 8 and len(own) == 24
    assert builtin_prompts("../pair") == builtin_prompts()


@pytest.mark.parametrize(
    ("pair", "file"),
    [
        ("builtin", BUILTIN_SET),
        ("qwen3-8b-0.6b", QUESTIONS),
        ("pythia-2.8b-70m", BUILTIN_SET),
        ("owner/Llama-3.2-3B-Instruct+owner/draft", QUESTIONS),
        ("google/gemma-3-4b-it+none", QUESTIONS),
        ("owner/gpt2-italian+none", BUILTIN_SET),
        ("/home/chat/gpt2+/home/instruct/draft", BUILTIN_SET),
        ("/files/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf+/files/draft.gguf", CODE),
        ("Qwen/Qwen2.5-Coder-7B-Instruct+none@4bit", CODE),
        ("bigcode/starcoder2-3b+none", COMPLETION),
        ("http://127.0.0.1:8000/v1#Qwen2.5-Coder-7B-Instruct+draft", CODE),
    ],
)
def test_a_pair_gets_prompts_that_suit_it(pair: str, file: Path):
    assert prompts_for(pair) == file
    kinds = [one.kind for one in builtin_prompts(pair)]
    assert min(kinds.count(kind) for kind in kinds) >= 3


CONVERSATION = [
    HELPFUL,
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "how?"}],
    },
]
TURNS = (
    Message("system", "Be helpful."),
    Message("user", "Why?"),
    Message("assistant", "So."),
    Message("user", "And how?"),
)


@pytest.mark.parametrize(
    "entry",
    [
        {"messages": CONVERSATION},
        {"prompt": CONVERSATION},
        {"messages": [*CONVERSATION, {"role": "assistant", "content": "Thus."}]},
        {
            "conversations": [
                {"from": "system", "value": "Be helpful."},
                {"from": "human", "value": "Why?"},
                {"from": "gpt", "value": "So."},
                {"from": "human", "value": "And how?"},
                {"from": "gpt", "value": "Thus."},
            ]
        },
    ],
)
def test_a_conversation_keeps_its_turns_up_to_the_users_last(entry: dict):
    (prompt,) = prompts_from(json.dumps(entry).encode(), "a.jsonl")
    assert prompt.messages == prompt.content == TURNS and prompt.text == "And how?"


def test_a_single_turn_of_the_user_is_a_text():
    entry = {"messages": [{"role": "user", "content": "Why?"}]}
    (prompt,) = prompts_from(json.dumps(entry).encode(), "a.jsonl")
    assert prompt.content == prompt.text == "Why?"


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "tool", "content": "42"},
        {"content": "42"},
        {"role": "assistant", "content": " "},
        {"role": "assistant", "content": None},
        "So.",
    ],
    ids=str,
)
def test_a_turn_that_is_none_is_named(turn: object, sentences: Sentences):
    entry = {"messages": [CONVERSATION[1], turn, CONVERSATION[1]]}
    with sentences.raises(PromptError):
        prompts_from(json.dumps(entry).encode(), "a.jsonl")


def test_a_file_of_one_conversation_is_read(tmp_path: Path, sentences: Sentences):
    path = tmp_path / "chat.json"
    for content in (CONVERSATION, {"messages": CONVERSATION}):
        path.write_text(json.dumps(content), encoding="utf-8")
        assert messages_file(path) == CONVERSATION
    for content in ([], {"turns": []}, "x"):
        path.write_text(json.dumps(content), encoding="utf-8")
        with sentences.raises(PromptError):
            messages_file(path)


def test_the_page_leaves_conversations_out_and_says_where_to_sweep_them(sentences: Sentences):
    rows = [json.dumps({"messages": CONVERSATION}), json.dumps({"prompt": "Why?"})]
    answer = answer_to("prompts", "\n".join(rows).encode())
    assert answer == {"prompts": [["prompts", "Why?"]], "left_out": 1}
    sentences(answer_to("prompts", rows[0].encode())["error"])
