import test from "ava";
import fc from "fast-check";
import { TemplateError, parseTemplate } from "../../../src/server/rest/template.ts";

const accepted: [template: string, segments: string[], verb: string, variables: string[]][] = [
  ["/v1", ["v1"], "", []],
  ["/v1/a/b", ["v1", "a", "b"], "", []],
  ["/v1/{id}", ["v1", "*"], "", ["id 1-2"]],
  ["/v1/{a.b.c}", ["v1", "*"], "", ["a.b.c 1-2"]],
  ["/v1/{name=a/*/b/*}/c", ["v1", "a", "*", "b", "*", "c"], "", ["name 1-5 multi"]],
  ["/v1/{name=*}", ["v1", "*"], "", ["name 1-2"]],
  ["/v1/{name=**}", ["v1", "**"], "", ["name 1-2 rest multi"]],
  ["/v1/{name=a/**}:go", ["v1", "a", "**"], "go", ["name 1-3 rest multi"]],
  ["/v1/*/{x}/**", ["v1", "*", "*", "**"], "", ["x 2-3"]],
  ["/v1/a:go", ["v1", "a"], "go", []],
  ["/v1/caf%C3%A9", ["v1", "café"], "", []],
  ["/v1/a%3Ab", ["v1", "a:b"], "", []],
  ["/v1/.well-known", ["v1", ".well-known"], "", []],
];

for (const [source, segments, verb, variables] of accepted) {
  test(`the parser accepts ${source}`, (t) => {
    const template = parseTemplate(source);
    t.deepEqual([template.segments, template.verb], [segments, verb]);
    const shown = template.variables.map(({ fieldPath, start, end, rest, multi }) =>
      [`${fieldPath.join(".")} ${start}-${end}`, ...(rest ? ["rest"] : []), ...(multi ? ["multi"] : [])].join(
        " ",
      ),
    );
    t.deepEqual(shown, variables);
  });
}

const rejected: [template: string, problem: RegExp][] = [
  ["", /character 1: it must start with a slash/],
  ["v1", /must start with a slash/],
  ["/", /segment is empty/],
  ["/v1/", /character 5: a segment is empty/],
  ["//v1", /segment is empty/],
  ["/v1//a", /segment is empty/],
  ["/v1?x=1", /"\?" is not allowed/],
  ["/v1/a b", /" " is not allowed/],
  ["/v1/{}", /field name is missing/],
  ["/v1/{=a}", /field name is missing/],
  ["/v1/{1a}", /field name is missing/],
  ["/v1/{a.}", /field name is missing/],
  ["/v1/{a", /not closed/],
  ["/v1/{a=b", /not closed/],
  ["/v1/a}", /"}" is not allowed/],
  ["/v1/{a=}", /segment is empty/],
  ["/v1/{a={b}}", /cannot contain another/],
  ["/v1/{a}/{a}", /"a" appears twice/],
  ["/v1/{a}{b}", /is not allowed/],
  ["/v1/x{a}", /is not allowed/],
  ["/v1/**/a", /nothing may follow/],
  ["/v1/{a=**}/b", /nothing may follow/],
  ["/v1/{a=**/b}", /nothing may follow/],
  ["/v1/***", /is not allowed/],
  ["/v1/a*", /is not allowed/],
  ["/v1/a:", /verb after the colon is empty/],
  ["/v1/:go", /segment is empty/],
  ["/v1/a:go/b", /is not allowed/],
  ["/v1/a:go:stop", /is not allowed/],
  ["/v1/%zz", /not allowed/],
  ["/v1/%2", /not allowed/],
  ["/v1/%ff", /not percent-encoded UTF-8/],
  ["/v1/a%2Fb", /cannot be part/],
  ["/v1/a%00", /cannot be part/],
  ["/v1/..", /cannot be part/],
  ["/v1/%2E", /cannot be part/],
  ["/v1/%2A", /wildcard/],
  ["/v1/a#b", /is not allowed/],
];

for (const [source, problem] of rejected) {
  test(`the parser rejects "${source}"`, (t) => {
    t.regex(t.throws(() => parseTemplate(source), { instanceOf: TemplateError }).message, problem);
  });
}

const literal = fc.stringMatching(/^[a-z0-9_-]{1,6}$/);
const segment = fc.oneof(
  { weight: 3, arbitrary: literal.map((text) => ({ text, segments: [text] })) },
  fc.constant({ text: "*", segments: ["*"] }),
  fc.array(fc.oneof(literal, fc.constant("*")), { minLength: 1, maxLength: 3 }).map((inner) => ({ inner })),
);

test("a template built from the grammar parses to its parts", (t) => {
  fc.assert(
    fc.property(
      fc.array(segment, { minLength: 1, maxLength: 6 }),
      fc.constantFrom("", "**", "{rest=**}"),
      fc.option(literal, { nil: "" }),
      (parts, tail, verb) => {
        const texts = parts.map((part, n) =>
          "inner" in part ? `{v${n}=${part.inner.join("/")}}` : part.text,
        );
        const segments = parts.flatMap((part) => ("inner" in part ? part.inner : part.segments));
        const path = [...texts, ...(tail === "" ? [] : [tail])].join("/");
        const template = parseTemplate(`/${path}${verb === "" ? "" : `:${verb}`}`);
        t.deepEqual(template.segments, [...segments, ...(tail === "" ? [] : ["**"])]);
        t.is(template.verb, verb);
        for (const { fieldPath, start, end } of template.variables) {
          const part = parts[Number(fieldPath[0]?.slice(1))];
          if (part !== undefined && "inner" in part)
            t.deepEqual(template.segments.slice(start, end), part.inner);
        }
      },
    ),
  );
});

test("any text is either parsed or a TemplateError", (t) => {
  const text = fc.stringMatching(/^\/?[a-z/{}*=:.%?2F ]{0,20}$/);
  fc.assert(
    fc.property(fc.oneof(text, fc.string()), (source) => {
      try {
        const template = parseTemplate(source);
        return template.source === source && template.segments.length > 0;
      } catch (error) {
        return error instanceof TemplateError;
      }
    }),
    { numRuns: 5000 },
  );
  t.pass();
});
