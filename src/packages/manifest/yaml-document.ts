/**
 * Parses untrusted YAML within limits of size, tokens, depth and expanded alias values; each value keeps its line for
 * messages. Parsing blocks its thread: a thousand tokens may take about 3 ms.
 */
import {
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  parseDocument,
  type Alias,
  type Node,
  type Pair,
  type ParsedNode,
} from "yaml";
import type { JsonValue } from "../../lib/json.ts";

/** Path of a value: object keys and array indexes from the root. */
export type DocumentPath = readonly (string | number)[];

/** A problem in a document; the line counts from 1. */
export interface Problem {
  line: number;
  message: string;
}

export interface YamlBounds {
  /** Length of the text in UTF-8 bytes. */
  maxBytes: number;
  /** Lexer tokens, which determine the cost of composing. */
  maxTokens: number;
  /** Nesting of maps and lists. */
  maxDepth: number;
  /** Number of values after expanding aliases. */
  maxValues: number;
}

/** A parsed document: plain JSON values, and the line of each. */
export interface YamlDocument {
  value: JsonValue;
  /** Line of the key or list item at `path`, or of the nearest parent in the text. */
  lineOf: (path: DocumentPath) => number;
}

export type YamlResult = { document: YamlDocument } | { problems: Problem[] };

const keysThatConfuseJavaScript = new Set(["__proto__", "constructor", "prototype"]);

/** Parses one YAML 1.2 document (core schema); returns problems instead of throwing. */
export function readYaml(text: string, bounds: YamlBounds): YamlResult {
  const sizeBytes = Buffer.byteLength(text);
  if (sizeBytes > bounds.maxBytes) {
    return refuse(1, `the document has ${sizeBytes} bytes (limit ${bounds.maxBytes})`);
  }
  if (hasMoreTokens(text, bounds.maxTokens)) {
    return refuse(1, `the document has more than ${bounds.maxTokens} YAML tokens`);
  }
  const lines = new LineCounter();
  // Pretty errors quote the text around an error: slow for hostile input, and they reveal content. The parser's own
  // check of unique keys is quadratic; the one below is not.
  const parsed = withoutStacks(() =>
    parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: false }),
  );
  const lineAt = (offset: number | undefined): number =>
    offset === undefined ? 1 : lines.linePos(offset).line;
  const [first] = parsed.errors;
  if (first !== undefined) return refuse(lineAt(first.pos[0]), sentence(first.message));

  const reader = new NodeReader(bounds, lineAt);
  const value = parsed.contents === null ? null : reader.read(parsed.contents, 0);
  if (reader.problems.length > 0) return { problems: reader.problems };
  return { document: { value, lineOf: (path) => lineAt(offsetOf(parsed.contents, path)) } };
}

function refuse(line: number, message: string): YamlResult {
  return { problems: [{ line, message }] };
}

/**
 * The parser creates an error for each of thousands of wrong brackets, and capturing stacks would be most of the
 * work.
 */
function withoutStacks<T>(parse: () => T): T {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return parse();
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function sentence(message: string): string {
  return message.includes("call stack") ? "the document is nested too deep" : message;
}

function hasMoreTokens(text: string, max: number): boolean {
  let count = 0;
  for (const _ of new Lexer().lex(text)) {
    count += 1;
    if (count > max) return true;
  }
  return false;
}

/** Tags that are not compose's `!reset`, which has several spellings. */
const plainTag = /^(?:!|!override|tag:yaml\.org,2002:.*)?$/;

/** Converts nodes to JSON values; stops at the first exceeded limit. */
class NodeReader {
  readonly problems: Problem[] = [];
  readonly #bounds: YamlBounds;
  readonly #lineAt: (offset: number | undefined) => number;
  /** The anchors so far: a name may be used again for another node. */
  readonly #anchors = new Map<string, ParsedNode>();
  /** The node of each alias, as determined where the alias is written. */
  readonly #targets = new Map<ParsedNode, ParsedNode | undefined>();
  /** Number of aliases that are being expanded. */
  #expanding = 0;
  #hasMergeKey = false;
  /** The first node with a tag that may be `!reset`. */
  #reset: ParsedNode | undefined;
  #values = 0;

  constructor(bounds: YamlBounds, lineAt: (offset: number | undefined) => number) {
    this.#bounds = bounds;
    this.#lineAt = lineAt;
  }

  read(node: ParsedNode | null, depth: number): JsonValue {
    if (node === null || this.problems.length > 0) return null;
    this.#values += 1;
    if (this.#values > this.#bounds.maxValues) {
      return this.#problem(node, `more than ${this.#bounds.maxValues} values, aliases expanded`);
    }
    if (depth > this.#bounds.maxDepth) {
      return this.#problem(node, `nested deeper than ${this.#bounds.maxDepth} levels`);
    }
    if (isAlias(node)) return this.#expand(node, depth);
    this.#remember(node);
    if (!plainTag.test(node.tag ?? "")) this.#reset ??= node;
    if (isMap(node)) return this.#readMap(node.items, depth);
    if (isSeq(node)) return node.items.map((item) => this.read(item, depth + 1));
    return this.#readScalar(node);
  }

  #expand(alias: Alias.Parsed, depth: number): JsonValue {
    if (!this.#targets.has(alias)) this.#targets.set(alias, this.#anchors.get(alias.source));
    const target = this.#targets.get(alias);
    if (target === undefined)
      return this.#problem(alias, `the alias *${alias.source} has no anchor above it`);
    this.#expanding += 1;
    const value = this.read(target, depth + 1);
    this.#expanding -= 1;
    return value;
  }

  #remember(node: Exclude<ParsedNode, Alias.Parsed>): void {
    if (node.anchor !== undefined && this.#expanding === 0) this.#anchors.set(node.anchor, node);
  }

  #readMap(pairs: readonly Pair<ParsedNode, ParsedNode | null>[], depth: number): JsonValue {
    const entries = new Map<string, JsonValue>();
    for (const { key, value } of pairs) {
      const name = keyText(key);
      if (!isScalar(key) || name?.isWellFormed() !== true)
        return this.#problem(key, "keys must be plain text");
      this.#remember(key);
      if (keysThatConfuseJavaScript.has(name)) return this.#problem(key, `the key "${name}" is reserved`);
      if (entries.has(name)) return this.#problem(key, `the key "${name}" appears twice`);
      if (name === "<<") this.#hasMergeKey = true;
      entries.set(name, this.read(value, depth + 1));
    }
    // Compose removes these values before it merges, and then uses the merged ones.
    if (this.#hasMergeKey && this.#reset !== undefined)
      return this.#problem(this.#reset, 'tags such as !reset are not allowed in a file with the key "<<"');
    return Object.fromEntries(entries);
  }

  #readScalar(node: ParsedNode): JsonValue {
    const value: unknown = isScalar(node) ? node.value : undefined;
    if (value === null || typeof value === "boolean") return value;
    // Lone surrogates cannot be written for other programs.
    if (typeof value === "string" && value.isWellFormed()) return value;
    if (typeof value === "number" && Number.isFinite(value)) return value;
    return this.#problem(node, "the value is not text, a number, true, false or null");
  }

  #problem(node: ParsedNode, message: string): null {
    if (this.problems.length === 0) {
      this.problems.push({ line: this.#lineAt(node.range[0]), message });
    }
    return null;
  }
}

function keyText(key: ParsedNode): string | undefined {
  if (!isScalar(key)) return undefined;
  const value: unknown = key.value;
  if (typeof value === "string") return value;
  // The parser's value for `<<` with its tag, which some programs write: `!!merge <<: *common`.
  if (typeof value === "symbol") return value.description;
  return typeof value === "number" || typeof value === "boolean" ? String(value) : undefined;
}

/** Offset of the deepest key or item of `path` that exists in the text. */
function offsetOf(root: ParsedNode | null, path: DocumentPath): number | undefined {
  let node: Node | null = root;
  let offset = root?.range[0];
  for (const step of path) {
    if (isMap(node)) {
      const pair = (node.items as Pair<ParsedNode, ParsedNode | null>[]).find(
        ({ key }) => keyText(key) === String(step),
      );
      if (pair === undefined) return offset;
      offset = pair.key.range[0];
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number") {
      const item = node.items[step] as ParsedNode | undefined;
      if (item === undefined) return offset;
      offset = item.range[0];
      node = item;
    } else return offset;
  }
  return offset;
}
