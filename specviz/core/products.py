"""The ways in which passes on a processor multiply weights of few bits."""

from __future__ import annotations

INTEGER_PRODUCTS = "int8"
"""Products of weights of few bits with inputs rounded to 8 bits, as integers."""

FP32_PRODUCTS = "fp32"
"""Products in fp32, with weights unpacked on the fly."""

PRODUCTS = (INTEGER_PRODUCTS, FP32_PRODUCTS)
"""All of them."""

PRODUCTS_IN_WORDS = {
    INTEGER_PRODUCTS: "inputs in 8 bits, as in llama.cpp",
    FP32_PRODUCTS: "products in fp32",
}


def arithmetic_in_words(weights: str, products: str | None) -> str:
    """Describe how a model's products are computed: "Q4_K, inputs in 8 bits, as in llama.cpp".

    weights: their form, a dtype or the kind of most blocks. products: one of `PRODUCTS`, or None
    where weights are plain numbers.
    """
    if products is None:
        return weights
    return f"{weights}, {PRODUCTS_IN_WORDS[products]}"
