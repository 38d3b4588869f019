import test from "ava";
import fc from "fast-check";
import { canonicalPath } from "../../../src/server/rest/path.ts";
import { Router, type Route, type RouteMatch } from "../../../src/server/rest/router.ts";
import { parseTemplate } from "../../../src/server/rest/template.ts";
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
