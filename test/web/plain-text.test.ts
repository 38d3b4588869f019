/** How untrusted text and the daemon's messages are shown to users. */
import test from "ava";
import { ended, plainLine, plainText, sentence } from "../../src/web/plain-text.ts";

for (const [what, text, shown] of [
  ["turns text around", "a\u202egnp.exe", "a\\u202egnp.exe"],
  ["isolates", "\u2066a\u2069", "\\u2066a\\u2069"],
  ["marks a direction", "\u200ea\u200f", "\\u200ea\\u200f"],
  ["separates lines", "a\u2028b\u2029", "a\\u2028b\\u2029"],
  ["controls", "a\u0000b\u001b[2Jc\u007f", "a\\u0000b\\u001b[2Jc\\u007f"],
  ["controls with eight bits", "a\u009b2Jb\u0080", "a\\u009b2Jb\\u0080"],
  ["goes back", "secret\rpublic\b", "secret\\u000dpublic\\u0008"],
  ["is of any language", "שלום é 日本 👍", "שלום é 日本 👍"],
] as const)
  test(`${what} is shown as plain text`, (t) => t.is(plainText(text), shown));

test("a log line loses only its colors and its line ending", (t) => {
  t.is(plainLine("\u001b[1;31mred\u001b[0m\r"), "red");
  t.is(plainLine("\u001b[2Jgone\rback"), "\\u001b[2Jgone\\u000dback");
});

for (const [words, shown] of [
  ["it is busy", "It is busy."],
  ["no", "No."],
  ["can't be read, ever!", "Can't be read, ever!"],
  ["svc.yaml: line 5: unknown key", "svc.yaml: line 5: unknown key."],
  ["greeting: is too long", "greeting: is too long."],
  ["svc needs Node", "svc needs Node."],
  ['"web" is there', '"web" is there.'],
  ["", ""],
] as const)
  test(`the daemon's message "${words}" is a sentence`, (t) => t.is(sentence(words), shown));

test("a sentence before another one ends with a period", (t) => {
  t.deepEqual(["a word", "a word.", "why?", ""].map(ended), ["a word.", "a word.", "why?", ""]);
});
