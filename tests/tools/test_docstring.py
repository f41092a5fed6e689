import pytest

from agentkv.tools.docstring import read_docstring

GOOGLE = """Find an order.

    Looks in every shop.

    Args:
        order_id (str): Which order,
            as printed on the bill.
        limit: At most: this many.

        deep (dict[str, int], optional): Also old ones.

    Returns:
        limit: not a parameter.
    """

NUMPY = """Find an order.

    Looks in every shop.

    Parameters
    ----------
    order_id : str
        Which order,
        as printed on the bill.
    limit
        At most: this many.
    deep : dict[str, int], optional
        Also old ones.

    Returns
    -------
    limit : int
        Not a parameter.
    """

SPHINX = """Find an order.

    Looks in every shop.

    :param str order_id: Which order,
        as printed on the bill.
    :param limit: At most: this many.
    :type limit: int
    :param deep: Also old ones.
    :returns: Nothing: really.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_all_three_styles_say_the_same(text: str) -> None:
    docstring = read_docstring(text)
    assert docstring.description == "Find an order.\n\nLooks in every shop."
    assert docstring.parameters == {
        "order_id": "Which order, as printed on the bill.",
        "limit": "At most: this many.",
        "deep": "Also old ones.",
    }


def test_numpy_entry_can_name_several_parameters() -> None:
    docstring = read_docstring("Add.\n\nParameters\n----------\na, b : int\n    A term.\n")
    assert docstring.parameters == {"a": "A term.", "b": "A term."}


def test_text_after_the_parameters_is_no_part_of_them() -> None:
    assert read_docstring("Add.\n\nArgs:\n    a: A term.\n\nPlain text: here.").parameters == {"a": "A term."}
    assert read_docstring("Add.\n\n:param a: A term.\n\nPlain text.").parameters == {"a": "A term."}


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_no_docstring_is_an_empty_description(text: str | None) -> None:
    assert read_docstring(text).description == ""
    assert read_docstring(text).parameters == {}


def test_a_colon_in_prose_starts_no_section() -> None:
    text = "Beware: this is prose.\n\nNote well:\n    still prose."
    assert read_docstring(text).description == text


def test_an_empty_section_has_no_parameters() -> None:
    assert read_docstring("Add.\n\nArgs:\n").parameters == {}
