/**
 * Path templates of `google.api.http` (its grammar is in google/api/http.proto):
 *
 *     Template = "/" Segment { "/" Segment } [ ":" LITERAL ]
 *     Segment  = "*" | "**" | LITERAL | "{" FieldPath [ "=" Segments ] "}"
 *
 * The parser is strict: a bad template fails the generation of the route table, instead of creating a route that no request
 * can match.
 */

/** A variable of a template: the field that it sets, and the segments that it matches. */
export interface TemplateVariable {
  /** Field names from the request message to the field, as in the contract. */
  readonly fieldPath: readonly string[];
  /** Index of its first segment. */
  readonly start: number;
  /** Index after its last segment; the end of the path when `rest` is true. */
  readonly end: number;
  /** Matches everything up to the end of the path (`**`). */
  readonly rest: boolean;
  /** Can match more than one segment, so that an escaped slash in it stays escaped. */
  readonly multi: boolean;
}

/** A parsed template. */
export interface Template {
  /** The template in the contract. */
  readonly source: string;
  /** `*`, `**`, or the decoded text of a literal, which cannot be a wildcard. */
  readonly segments: readonly string[];
  /** Text after the colon at the end; empty without a verb. */
  readonly verb: string;
  readonly variables: readonly TemplateVariable[];
}

/** A template that breaks the grammar. The message has the position. */
export class TemplateError extends Error {
  constructor(template: string, position: number, problem: string) {
    super(`template "${template}", character ${position + 1}: ${problem}`);
    this.name = "TemplateError";
  }
}

const literalPattern = /(?:[A-Za-z0-9\-._~!$&'()+,;=@]|%[0-9A-Fa-f]{2})+/y;
const identifierPattern = /[A-Za-z_][A-Za-z0-9_]*/y;

/**
 * Parses a template.
 * @throws TemplateError if it breaks the grammar, repeats a variable, or has `**` before the end
 */
export function parseTemplate(source: string): Template {
  return new TemplateParser(source).parse();
}

class TemplateParser {
  readonly #source: string;
  #at = 0;
  readonly #segments: string[] = [];
  readonly #variables: TemplateVariable[] = [];
  #inVariable = false;

  constructor(source: string) {
    this.#source = source;
  }

  parse(): Template {
    if (!this.#take("/")) this.#fail("the path must start with a slash");
    this.#parseSegments();
    let verb = "";
    if (this.#take(":")) {
      if (this.#at === this.#source.length) this.#fail("the verb after the colon is empty");
      verb = this.#parseLiteral();
    }
    if (this.#at < this.#source.length) this.#fail(`"${this.#source.charAt(this.#at)}" is not allowed here`);
    return { source: this.#source, segments: this.#segments, verb, variables: this.#variables };
  }

  #parseSegments(): void {
    do {
      if (this.#segments.at(-1) === "**") this.#fail("nothing may follow **");
      this.#parseSegment();
    } while (this.#take("/"));
  }

  #parseSegment(): void {
    if (this.#take("**")) this.#segments.push("**");
    else if (this.#take("*")) this.#segments.push("*");
    else if (this.#take("{")) this.#parseVariable();
    else this.#segments.push(this.#parseLiteral());
  }

  #parseVariable(): void {
    if (this.#inVariable) this.#fail("a variable cannot contain another variable");
    this.#inVariable = true;
    const start = this.#segments.length;
    const fieldPath = this.#parseFieldPath();
    if (this.#take("=")) this.#parseSegments();
    else this.#segments.push("*");
    if (!this.#take("}")) this.#fail("the variable is not closed");
    this.#inVariable = false;

    const rest = this.#segments.at(-1) === "**";
    const end = this.#segments.length;
    this.#variables.push({ fieldPath, start, end, rest, multi: rest || end - start > 1 });
  }

  #parseFieldPath(): string[] {
    const fieldPath = [];
    do fieldPath.push(this.#match(identifierPattern) ?? this.#fail("a field name is missing"));
    while (this.#take("."));
    const name = fieldPath.join(".");
    if (this.#variables.some((variable) => variable.fieldPath.join(".") === name)) {
      this.#fail(`the variable "${name}" appears twice`);
    }
    return fieldPath;
  }

  #parseLiteral(): string {
    const start = this.#at;
    const text =
      this.#match(literalPattern) ?? this.#fail("a segment is empty or has a character that is not allowed");
    const decoded = decodeText(text);
    if (decoded === undefined) this.#failAt(start, `"${text}" is not percent-encoded UTF-8`);
    if (decoded === "." || decoded === ".." || decoded.includes("/") || decoded.includes("\0")) {
      this.#failAt(start, `"${text}" cannot be part of a canonical path`);
    }
    if (decoded === "*" || decoded === "**") this.#failAt(start, `"${text}" looks like a wildcard`);
    return decoded;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const text = pattern.exec(this.#source)?.[0];
    if (text !== undefined) this.#at += text.length;
    return text;
  }

  #take(token: string): boolean {
    if (!this.#source.startsWith(token, this.#at)) return false;
    this.#at += token.length;
    return true;
  }

  #fail(problem: string): never {
    this.#failAt(this.#at, problem);
  }

  #failAt(position: number, problem: string): never {
    throw new TemplateError(this.#source, position, problem);
  }
}

function decodeText(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
