"""Schemas from type hints, and values of their types."""

import enum
import unittest
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import junctor
from junctor import schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


class Query(TypedDict):
    text: Annotated[str, "What is searched"]
    limit: NotRequired[int]


@dataclass
class Tree:
    children: "list[Tree]"


POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0},
                                          "tags": {"type": "array", "items": {"type": "string"}}},
         "additionalProperties": False, "required": ["x"]}


class SchemaTest(unittest.TestCase):
    def test_schemas(self):
        for hint, want in (
            (str, {"type": "string"}), (int, {"type": "integer"}), (float, {"type": "number"}), (bool, {"type": "boolean"}),
            (None, {"type": "null"}), (Any, {}), (list, {"type": "array"}), (list[int], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}), (dict, {"type": "object"}),
            (Optional[int], {"type": ["integer", "null"]}), (str | None, {"type": ["string", "null"]}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}), (Literal["a", 1], {"enum": ["a", 1]}),
            (Colour, {"type": "string", "enum": ["red", "blue"]}), (Point, POINT), (list[Point] | None, {"anyOf": [
                {"type": "array", "items": POINT}, {"type": "null"}]}),
            (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}), (set[str], {"type": "array", "items": {"type": "string"},
                                                                                         "uniqueItems": True}),
            (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
            (Annotated[int, "How many", {"minimum": 1}], {"type": "integer", "description": "How many", "minimum": 1}),
            (Query, {"type": "object", "properties": {"text": {"type": "string", "description": "What is searched"},
                                                      "limit": {"type": "integer"}}, "additionalProperties": False, "required": ["text"]}),
        ):
            with self.subTest(str(hint)):
                self.assertEqual(schema.schema_of(hint), want)

    def test_types_without_a_json_form_are_refused(self):
        for hint in (complex, dict[int, str], Tree, object().__class__.__subclasses__, Literal[b"x"]):
            with self.subTest(str(hint)), self.assertRaises(TypeError):
                schema.schema_of(hint)


class DecodeTest(unittest.TestCase):
    def test_values(self):
        for hint, value, want in (
            (int, 3.0, 3), (float, 3, 3.0), (Point, {"x": 1}, Point(1)), (Colour, "red", Colour.RED), (Query, {"text": "a"}, {"text": "a"}),
            (int | str, "a", "a"), (Optional[Point], None, None), (set[int], [1, 1], {1}), (tuple[int, str], [1, "a"], (1, "a")),
            (bytes, {"$bytes": "aGk="}, b"hi"), (dict[str, int], {"a": 1}, {"a": 1}), (Literal[1, True], True, True), (Any, [1], [1]),
        ):
            with self.subTest(f"{hint} {value}"):
                got = schema.decode(hint, value)
                self.assertEqual(got, want)
                self.assertIs(type(got), type(want))

    def test_wrong_values_are_refused_without_showing_them(self):
        for hint, value in (
            (int, "1"), (int, True), (int, 1.5), (str, 1), (bool, 1), (float, "x"), (list[int], [1, "secret"]), (Point, {}),
            (Point, {"x": 1, "z": 2}), (Point, []), (Colour, "secret"), (Query, {"limit": 1}), (int | None, "secret"), (bytes, "secret"),
            (bytes, {"$bytes": "*"}), (tuple[int, str], [1]), (dict[str, int], {"a": "secret"}), (None, 0), (Literal[1], True),
            (float, 10 ** 400),
        ):
            with self.subTest(f"{hint} {value if value != 10 ** 400 else 'large'}"), self.assertRaises(junctor.Error) as got:
                schema.decode(hint, value)
            self.assertEqual(got.exception.code, "invalid_input")
            self.assertNotIn("secret", str(got.exception))


class SignatureTest(unittest.TestCase):
    def test_arguments_are_bound_by_place_and_by_name(self):
        def function(a: int, /, b: str = "x", *rest: int, c: Point, **more: bool):
            """Do a thing.

            More about it.
            """
        s = schema.Signature(function)
        self.assertEqual(s.schema["required"], ["a", "c"])
        self.assertEqual(s.bind([1, "y", 3], {"c": {"x": 1}, "d": True}), ([1, "y", 3], {"c": Point(1), "d": True}))
        self.assertEqual(schema.description_of(function), "Do a thing.")
        for args, kwargs in (([], {"c": {"x": 1}}), ([1], {}), ([1, "y"], {"b": "z", "c": {"x": 1}}), (["x"], {"c": {"x": 1}}),
                             ([1], {"c": {"x": 1}, "d": 1}), ([1, "y", "z"], {"c": {"x": 1}})):
            with self.subTest(f"{args} {kwargs}"), self.assertRaises(junctor.Error):
                s.bind(args, kwargs)

    def test_unknown_arguments_are_refused(self):
        s = schema.Signature(lambda a=1: a)
        with self.assertRaises(junctor.Error):
            s.bind([1, 2], {})
        with self.assertRaises(junctor.Error):
            s.bind([], {"b": 1})
        self.assertEqual(s.schema, {"type": "object", "properties": {"a": {"default": 1}}, "additionalProperties": False})

    def test_injected_parameters_are_not_in_the_schema(self):
        class Context:
            pass

        def function(context: Context, a: int) -> list[int]:
            return [a]
        s = schema.Signature(function, (Context,))
        self.assertEqual(list(s.schema["properties"]), ["a"])
        self.assertEqual(s.injected, {"context": Context})
        self.assertEqual(s.output_schema(), {"type": "array", "items": {"type": "integer"}})


if __name__ == "__main__":
    unittest.main()
