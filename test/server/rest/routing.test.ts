/** The routes of the contract: templates, and the route of a path. */
import test from "ava";
import fc from "fast-check";
import { canonicalPath } from "../../../src/server/rest/path.ts";
import { Router, type Route, type RouteMatch } from "../../../src/server/rest/router.ts";
import { parseTemplate, TemplateError } from "../../../src/server/rest/template.ts";
import type { CanonicalPath } from "../../../src/server/rpc/http-request.ts";
import { loadTestContract } from "./support/contract.ts";

const contract = await loadTestContract();
const anyMethod = (contract.routes[0] as Route).method;

function route(httpMethod: string, source: string): Route {
  return { httpMethod, template: parseTemplate(source), method: anyMethod, body: "", responseBody: "" };
}

/** Whether a template matches a path. Written from the grammar, independently of the router. */
function matches({ template }: Route, segments: readonly string[], verb: string): boolean {
  if (template.verb !== verb || segments.includes("")) return false;
  const rest = template.segments.at(-1) === "**";
  const fixed = rest ? template.segments.slice(0, -1) : template.segments;
  if (rest ? segments.length < fixed.length : segments.length !== fixed.length) return false;
  return fixed.every((segment, n) => segment === "*" || segment === segments[n]);
}

/** Finds the route by trying all of them. If several match, the first differing segment decides: literal, then `*`, then `**`. */
function oracle(routes: readonly Route[], httpMethod: string, path: string): string {
  const candidates: [segments: string[], verb: string][] = [];
  const segments = path.slice(1).split("/");
  const last = segments.at(-1) ?? "";
  const colon = last.lastIndexOf(":");
  if (colon >= 0) candidates.push([[...segments.slice(0, -1), last.slice(0, colon)], last.slice(colon + 1)]);
  candidates.push([segments, ""]);

  const allow = new Set<string>();
  for (const [candidate, verb] of candidates) {
    if (verb === "" && candidate !== segments) continue;
    const matching = routes.filter((each) => matches(each, candidate, verb)).sort(bySpecificity);
    const found =
      matching.find((each) => each.httpMethod === httpMethod) ??
      (httpMethod === "HEAD" ? matching.find((each) => each.httpMethod === "GET") : undefined);
    if (found !== undefined) return `${found.httpMethod} ${found.template.source}`;
    for (const each of matching) allow.add(each.httpMethod);
  }
  if (allow.has("GET")) allow.add("HEAD");
  return allow.size === 0 ? "404" : `405 ${[...allow].sort().join()}`;
}

function bySpecificity(a: Route, b: Route): number {
  const rank = (segment: string | undefined): number =>
    segment === undefined ? 0 : segment === "**" ? 3 : segment === "*" ? 2 : 1;
  const length = Math.max(a.template.segments.length, b.template.segments.length);
  for (let n = 0; n < length; n++) {
    const difference = rank(a.template.segments[n]) - rank(b.template.segments[n]);
    if (difference !== 0) return difference;
  }
  return 0;
}

function show(match: RouteMatch): string {
  if (match.kind === "route") return `${match.route.httpMethod} ${match.route.template.source}`;
  return match.kind === "not_found" ? "404" : `405 ${match.allow.join()}`;
}

const word = fc.constantFrom("a", "b", "c");
const template = fc
  .tuple(
    fc.array(fc.oneof({ weight: 2, arbitrary: word }, fc.constant("*")), { minLength: 1, maxLength: 4 }),
    fc.constantFrom("", "", "", "/**"),
    fc.constantFrom("", "", "", ":go", ":stop"),
  )
  .map(([segments, tail, verb]) => `/${segments.join("/")}${tail}${verb}`);
const routeTable = fc
  .uniqueArray(fc.tuple(fc.constantFrom("GET", "POST", "PUT"), template), {
    selector: ([httpMethod, source]) => `${httpMethod} ${source}`,
    minLength: 1,
    maxLength: 25,
  })
  .map((entries) => entries.map(([httpMethod, source]) => route(httpMethod, source)));
const path = fc
  .tuple(
    fc.array(fc.constantFrom("a", "b", "c", "d", "a:go", ""), { minLength: 1, maxLength: 6 }),
    fc.constantFrom("", "", ":go", ":stop", ":other", ":"),
  )
  .map(([segments, verb]) => `/${segments.join("/")}${verb}`);

test("the router finds the same route as a search through all routes", (t) => {
  fc.assert(
    fc.property(
      routeTable,
      fc.constantFrom("GET", "POST", "PUT", "HEAD", "PATCH"),
      fc.array(path),
      (routes, httpMethod, paths) => {
        const router = new Router(routes);
        for (const each of paths)
          t.is(
            show(router.match(httpMethod, each as CanonicalPath)),
            oracle(routes, httpMethod, each),
            `${httpMethod} ${each}`,
          );
      },
    ),
    { numRuns: 2000 },
  );
});

test("the order of the routes does not matter", (t) => {
  fc.assert(
    fc.property(
      routeTable.chain((routes) =>
        fc.tuple(fc.constant(routes), fc.shuffledSubarray(routes, { minLength: routes.length })),
      ),
      path,
      ([routes, shuffled], each) => {
        const raw = each as CanonicalPath;
        t.is(show(new Router(routes).match("GET", raw)), show(new Router(shuffled).match("GET", raw)));
      },
    ),
  );
});

test("a path of thousands of segments is rejected without backtracking through them", (t) => {
  const router = new Router([route("GET", "/*/*/*/a"), route("GET", "/a/**"), route("GET", "/*/b/**:go")]);
  const kindOf = (start: string) =>
    router.match("GET", canonicalPath(`${start}${"/x".repeat(20_000)}`, { escapedSlash: "reject" })).kind;
  t.is(kindOf("/b"), "not_found");
  t.is(kindOf("/a"), "route");
});

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
