/** The prose check finds a violation of each rule, in comments, strings and documents. */
import test from "ava";
import { hitsIn } from "../../.ci/prose.ts";

for (const [rule, sentence] of [
  ["begin with a noun or a verb, not with who or what", "Who waits gets a turn."],
  ['write "is not", not "is no"', "The body is no JSON."],
  ['no inverted "of which"', "Two tasks, of which one runs."],
  ['no inverted "of"', "Of a table the first column alone is shown."],
  ['write "only", not "alone"', "The id alone, please."],
  ["no archaisms", "The app is started anew."],
  ["name who acts", "It is told once."],
  ['no "for who"', "A key for who asks."],
  ["use the term of the field", "The front door of the daemon."],
  ["at most 35 words", `${"word ".repeat(36)}end.`],
] as const) {
  test(`a sentence against the rule is found: ${rule}`, (t) => {
    for (const [file, text, line] of [
      ["src/a.ts", `/** ${sentence} */`, 1],
      ["src/a.ts", `\n// ${sentence}`, 2],
      ["src/a.ts", `const text = "${sentence}";`, 1],
      ["docs/a.md", `# Title\n\n${sentence}`, 3],
    ] as const) {
      t.true(
        hitsIn(file, text).some((hit) => hit.rule === rule && hit.line === line),
        text,
      );
    }
  });
}

test("code, code blocks and plain sentences have no hits", (t) => {
  t.deepEqual(hitsIn("src/a.ts", 'call("a", door.path, "b", alone);\n// Starts the app again.'), []);
  t.deepEqual(hitsIn("docs/a.md", "```sh\n# who is told anew\n```\nUse `front door` here."), []);
});
