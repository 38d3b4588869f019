/**
 * Finds the route of a request in a tree of segments. A literal has precedence over `*`, and `*` over `**`, regardless of the
 * order of the routes. If a path matches but its HTTP method does not, the search continues.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import type { CanonicalPath } from "../rpc/http-request.ts";
import { decodeSegment, decodeSegments } from "./path.ts";
import type { Template, TemplateVariable } from "./template.ts";

/** One binding of a method to an HTTP method and a path, from `google.api.http` or one of its `additional_bindings`. */
export interface Route {
  /** In upper case. */
  readonly httpMethod: string;
  readonly template: Template;
  readonly method: DescMethod;
  /** Name of the request field in the body; `*` for all fields that are not in the path; empty without a body. */
  readonly body: string;
  /** Name of the response field that is the whole body; empty for the response itself. */
  readonly responseBody: string;
}

/** Result of a search. */
export type RouteMatch =
  | { readonly kind: "route"; readonly route: Route; readonly segments: readonly string[] }
  | { readonly kind: "method_not_allowed"; readonly allow: readonly string[] }
  | { readonly kind: "not_found" };

interface Node {
  readonly literals: Map<string, Node>;
  any: Node | undefined;
  /** Routes that end here, by verb (empty without one) and HTTP method. */
  readonly ends: Endings;
  /** Routes with `**` from here on. */
  readonly rests: Endings;
}

type Endings = Map<string, Map<string, Route>>;

export class Router {
  readonly #root = createNode();
  readonly #verbs = new Set<string>();
  /** Routes without variables by HTTP method and path. No other route has precedence over them. */
  readonly #fixed = new Map<string, RouteMatch>();

  /** @param routes without duplicates; the code generator rejects them */
  constructor(routes: Iterable<Route>) {
    for (const route of routes) {
      insert(this.#root, route);
      const { verb, segments, source } = route.template;
      const isFixed = !segments.includes("*") && !segments.includes("**");
      if (verb !== "") this.#verbs.add(verb);
      else if (isFixed) this.#fixed.set(`${route.httpMethod} ${source}`, { kind: "route", route, segments });
    }
  }

  /**
   * @param httpMethod in upper case; HEAD uses the route of GET unless it has its own
   */
  match(httpMethod: string, path: CanonicalPath): RouteMatch {
    const fixed = this.#fixed.get(`${httpMethod} ${path}`);
    return fixed ?? match(this.#root, this.#verbs, httpMethod, path);
  }
}

/** The value of a variable in the raw segments of a match. */
export function captureVariable(variable: TemplateVariable, segments: readonly string[]): string {
  if (!variable.multi) return decodeSegment(segments[variable.start] ?? "");
  return decodeSegments(segments.slice(variable.start, variable.rest ? undefined : variable.end).join("/"));
}

function createNode(): Node {
  return { literals: new Map(), any: undefined, ends: new Map(), rests: new Map() };
}

function insert(root: Node, route: Route): void {
  let node = root;
  let endings: Endings | undefined;
  for (const segment of route.template.segments) {
    if (segment === "**") {
      endings = node.rests;
    } else if (segment === "*") {
      node = node.any ??= createNode();
    } else {
      let next = node.literals.get(segment);
      if (next === undefined) node.literals.set(segment, (next = createNode()));
      node = next;
    }
  }
  endings ??= node.ends;
  const { verb } = route.template;
  const byMethod = endings.get(verb) ?? new Map<string, Route>();
  byMethod.set(route.httpMethod, route);
  endings.set(verb, byMethod);
}

function match(root: Node, verbs: ReadonlySet<string>, httpMethod: string, path: string): RouteMatch {
  const segments = path.slice(1).split("/");
  // The text after a colon is a verb only if a route has that verb. In `/images/sha256:abc` the colon is data.
  const colon = path.lastIndexOf(":");
  const verb = path.slice(colon + 1);
  if (colon < 0 || !verbs.has(verb)) return new Search(httpMethod, segments).run(root);
  const withVerb = new Search(httpMethod, path.slice(1, colon).split("/"), verb);
  const found = withVerb.run(root);
  return found.kind === "route" ? found : new Search(httpMethod, segments, "", withVerb.allow).run(root);
}

class Search {
  readonly #httpMethod: string;
  readonly #segments: readonly string[];
  readonly #verb: string;
  #route: Route | undefined;
  /** HTTP methods of the routes whose path matched. Created on demand, because most searches do not need it. */
  #allow: Set<string> | undefined;

  constructor(httpMethod: string, segments: readonly string[], verb = "", allow?: Set<string>) {
    this.#httpMethod = httpMethod;
    this.#segments = segments;
    this.#verb = verb;
    this.#allow = allow;
  }

  get allow(): Set<string> | undefined {
    return this.#allow;
  }

  run(root: Node): RouteMatch {
    this.#walk(root, 0);
    if (this.#route !== undefined) return { kind: "route", route: this.#route, segments: this.#segments };
    if (this.#allow === undefined) return { kind: "not_found" };
    if (this.#allow.has("GET")) this.#allow.add("HEAD");
    return { kind: "method_not_allowed", allow: [...this.#allow].sort() };
  }

  #walk(node: Node, index: number): boolean {
    const segment = this.#segments[index];
    if (segment === undefined) return this.#matchEnd(node.ends) || this.#matchEnd(node.rests);
    if (segment === "") return false;
    const literal = node.literals.get(decodeSegment(segment));
    if (literal !== undefined && this.#walk(literal, index + 1)) return true;
    if (node.any !== undefined && this.#walk(node.any, index + 1)) return true;
    return node.rests.size > 0 && !this.#segments.includes("", index) && this.#matchEnd(node.rests);
  }

  #matchEnd(endings: Endings): boolean {
    if (endings.size === 0) return false;
    const byMethod = endings.get(this.#verb);
    if (byMethod === undefined) return false;
    this.#route =
      byMethod.get(this.#httpMethod) ?? (this.#httpMethod === "HEAD" ? byMethod.get("GET") : undefined);
    if (this.#route !== undefined) return true;
    this.#allow ??= new Set();
    for (const httpMethod of byMethod.keys()) this.#allow.add(httpMethod);
    return false;
  }
}
