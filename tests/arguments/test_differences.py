from delta_trl.arguments.differences import differences, in_words


def test_settings_that_differ_are_named_by_their_dotted_key():
    before = {
        "same": {"x": 1},
        "options": {},
        "later": None,
        "changed": {"x": 1, "y": 2},
        "gone": {"z": 0},
    }
    now = {
        "same": {"x": 1},
        "options": None,
        "later": {},
        "changed": {"x": 1, "y": 3},
        "new": {"z": 0},
    }
    assert differences(before, now) == {"changed.y": (2, 3), "gone.z": (0, None), "new.z": (None, 0)}


def test_words_tell_a_number_from_its_text():
    assert in_words({"a.b": ("1", 1), "c": (None, 0)}) == "a.b was '1' and is 1; c was None and is 0"
