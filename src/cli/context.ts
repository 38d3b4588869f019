/** The context of a running command: options, client and output. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { SvcError } from "../errors.ts";
import { chooseColumns, sortRows } from "./output/choose-columns.ts";
import { DeclinedError, asSvcError, describeFailure, failureJson } from "./output/failure.ts";
import type { CliHost, OutputStream } from "./host.ts";
import { localNode } from "./nodes/node-file.ts";
import { daemonCommand } from "./no-daemon.ts";
import { isInteractive } from "./input/prompt.ts";
import { createPaint, errorPrefix, hasErrorColor, wantsColor, type Paint } from "./output/color.ts";
import { escapeCell, escapeControls, escapeLines, formatJson } from "./output/escape.ts";
import { renderFields, renderTable, type Column, type Field, type TableStyle } from "./output/table.ts";
import { columnsOf } from "./output/width.ts";
import { connect } from "./client/routing.ts";
import type { UnaryCall } from "./client/calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client/client.ts";
import { untilDrained } from "./client/http.ts";
import type { RestShape } from "./client/rest-shape.ts";

export const outputFormats = ["json", "yaml", "wide", "name"] as const;
type OutputFormat = (typeof outputFormats)[number];

/** Options of every command. */
export interface GlobalOptions {
  readonly socket?: string;
  /** The address of a remote daemon. */
  readonly host?: string;
  /** The name of a node. */
  readonly node?: string;
  readonly json?: boolean;
  readonly output?: OutputFormat;
  /** A template for each entry of the output. */
  readonly format?: string;
  /** The column of a table to sort by, with `-` for descending order. */
  readonly sort?: string;
  /** Seconds. */
  readonly timeout?: number;
  readonly color: boolean;
  readonly yes?: boolean;
  /** Print only the first column of a table, without headings. */
  readonly quiet?: boolean;
  /** The columns of a table to show; default: all. */
  readonly columns?: readonly string[];
}

export class CommandContext implements AsyncDisposable {
  readonly host: CliHost;
  readonly options: GlobalOptions;
  /** Print data instead of text: as JSON, as YAML or by a template. */
  readonly json: boolean;
  /** Whether standard output supports colors. */
  readonly hasColor: boolean;
  readonly paint: Paint;
  #client: Promise<Client> | undefined;
  #openInProcess: () => Promise<Client>;

  constructor(host: CliHost, options: GlobalOptions, openInProcess: () => Promise<Client>) {
    this.host = host;
    const { format, ...others } = options;
    // Docker's form of `--json` is `--format json`.
    const isTemplate = format !== undefined && format !== "json";
    const { output, json = output === "json" || format === "json" } = options;
    const quiet = options.quiet === true || output === "name";
    this.options = { ...others, json, quiet, ...(isTemplate && { format }) };
    this.json = json || output === "yaml" || isTemplate;
    this.hasColor = wantsColor(host.env, host.stdout.isTTY ?? false, options.color);
    this.paint = createPaint(this.hasColor);
    this.#openInProcess = openInProcess;
  }

  /**
   * The same command at another node, given by name or address. `local` is this host, or the socket of the
   * command line. The caller disposes of it.
   */
  at(node: string | { readonly host: string }): CommandContext {
    const { host: _host, node: _node, socket, ...others } = this.options;
    const named = typeof node === "string" ? { node } : node;
    const target = node === localNode && socket !== undefined ? { socket } : named;
    return new CommandContext(this.host, { ...others, ...target }, this.#openInProcess);
  }

  /** The same command at another socket, interrupted by `interrupted` only. The caller disposes of it. */
  on(socket: string, interrupted: AbortSignal = this.host.interrupted): CommandContext {
    const { host: _host, node: _node, ...others } = this.options;
    return new CommandContext({ ...this.host, interrupted }, { ...others, socket }, this.#openInProcess);
  }

  /**
   * The same command over the same connection, with a time limit and not interrupted by Ctrl-C: for cleaning
   * up. Must not be disposed of.
   */
  uninterrupted(limitMs: number): CommandContext {
    return this.#withHost({ ...this.host, interrupted: AbortSignal.timeout(limitMs) });
  }

  /** The same command over the same connection, with other output streams. Must not be disposed of. */
  writingTo(stdout: OutputStream, stderr: OutputStream): CommandContext {
    return this.#withHost({ ...this.host, stdout, stderr });
  }

  #withHost(host: CliHost): CommandContext {
    const context = new CommandContext(host, this.options, this.#openInProcess);
    context.#client = this.client();
    return context;
  }

  /** A client of the daemon, or of the service layer in this process; chosen at the first call. */
  client(): Promise<Client> {
    return (this.#client ??= connect(this.host, {
      target: this.options,
      warn: (message) => this.note(`warning: ${message}`),
      openInProcess: this.#openInProcess,
    }));
  }

  get #callOptions(): CallOptions {
    const { timeout } = this.options;
    return {
      signal: this.host.interrupted,
      timeoutMs: timeout === undefined ? undefined : Math.round(timeout * 1000),
    };
  }

  /** Calls a unary method with the options of the command line. At a terminal, the ID of an app may be abbreviated. */
  async call<Request, Response>(call: UnaryCall<Request, Response>, request: Request): Promise<Response> {
    const client = await this.client();
    try {
      return await client.call(call, request, this.#callOptions);
    } catch (error) {
      if (!isInteractive(this.host)) throw error;
      const { unabbreviated } = await import("./abbreviation.ts");
      const whole = await unabbreviated(this, { call, request, error });
      if (whole === undefined) throw error;
      return client.call(call, whole, this.#callOptions);
    }
  }

  /**
   * Calls any method with messages and the options of the command line; see {@link Client.invoke}.
   * @param signal also cancels the call
   */
  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    signal?: AbortSignal,
  ): AsyncIterable<MessageShape<O>> {
    const options = this.#callOptions;
    const signals = [signal, options.signal].filter((each) => each !== undefined);
    yield* (await this.client()).invoke(method, requests, { ...options, signal: AbortSignal.any(signals) });
  }

  /**
   * Like {@link invoke}, for a method with one response, returned in REST JSON; also for methods that {@link
   * call} does not support.
   */
  async invokeOnce<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
  ): Promise<RestShape<MessageShape<O>>> {
    const { messageToRest } = await import("./client/rest-json.ts");
    for await (const message of this.invoke(method, requests)) return messageToRest(method.output, message);
    throw new SvcError("internal", `${method.name}: the daemon gave no result`);
  }

  /**
   * Like {@link invoke}, for streams that may be silent for hours: ends when nothing reads the output any more,
   * and subscribes again after the daemon was unavailable.
   * @param request returns the request for each subscription
   */
  async *follow<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    request: () => MessageInitShape<I>,
  ): AsyncIterable<MessageShape<O>> {
    const { follow } = await import("./logs/follow.ts");
    using _watch = await this.host.watchReader();
    yield* follow(this, method, request);
  }

  get tableStyle(): TableStyle {
    const { stdout } = this.host;
    const isCut = stdout.isTTY === true && this.options.output !== "wide";
    return { paint: this.paint, columns: isCut ? columnsOf(stdout) : undefined };
  }

  /** Writes to stdout; resolves when a slow reader has caught up. The caller must have escaped untrusted text. */
  print(text: string | Uint8Array): Promise<void> {
    const { stdout } = this.host;
    return text.length === 0 || stdout.write(text) ? Promise.resolve() : untilDrained(stdout);
  }

  /** Renders a table with the columns that the command line selects. @throws UsageError for an unknown column */
  table<Row>(columns: readonly Column<Row>[], unsorted: readonly Row[]): string {
    const rows = sortRows(columns, unsorted, this.options.sort);
    const first = columns.find(({ title }) => title !== "");
    if (this.options.quiet === true && first !== undefined)
      return rows.map((row) => `${escapeCell(first.value(row))}\n`).join("");
    return renderTable(
      chooseColumns(columns, this.options.columns, this.options.output === "wide"),
      rows,
      this.tableStyle,
    );
  }

  /** Prints a table, or JSON. @param none printed instead of an empty table */
  printTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[], none?: string): Promise<void> {
    if (rows.length > 0 || none === undefined) return this.#page(this.table(columns, rows));
    this.note(none);
    return Promise.resolve();
  }

  /** Shows text in a pager if it is longer than the terminal. */
  async #page(text: string): Promise<void> {
    if ((this.host.stdout.rows ?? 0) === 0) return this.print(text);
    const { page } = await import("./output/pager.ts");
    return page(this.host, text);
  }

  /** Prints names and values, one pair per line. */
  printFields(fields: readonly Field[]): Promise<void> {
    return this.print(renderFields(fields, this.paint));
  }

  async printJson(value: unknown): Promise<void> {
    return this.print((await this.#formatEntries(value)) ?? formatJson(value, 2));
  }

  /** Prints one line of a JSON stream. */
  async printJsonLine(value: unknown): Promise<void> {
    return this.print((await this.#formatEntries(value)) ?? formatJson(value, 0));
  }

  /** The value as `--format` or `-o yaml` prints it; undefined for JSON. */
  async #formatEntries(value: unknown): Promise<string | undefined> {
    const { format, output } = this.options;
    if (format === undefined && output !== "yaml") return undefined;
    const { formatYaml, formatEntries, requireKnownFields } = await import("./output/data-formats.ts");
    if (format === undefined) return formatYaml(value);
    await requireKnownFields(value, format);
    return formatEntries(value, format);
  }

  /** Prints a line of text. Control characters are escaped. */
  printLine(line: string): Promise<void> {
    return this.print(`${escapeControls(line)}\n`);
  }

  /** Prints the result: the response as JSON, or a line of text. */
  printResult(answer: unknown, line: string): Promise<void> {
    return this.json ? this.printJson(answer) : this.printLine(line);
  }

  /** Prints a line of text to stderr. Control characters are escaped. */
  note(line: string): void {
    const text = escapeControls(line);
    const paint = createPaint(hasErrorColor(this.host, this.options.color));
    this.host.stderr.write(`${text.replace(/^warning:/, (word) => paint("yellow", word))}\n`);
  }

  /** Like {@link note}, for several lines. */
  noteLines(text: string): void {
    this.host.stderr.write(`${escapeLines(text)}\n`);
  }

  /** Prints an error as text, or as one line of JSON in the shape of REST. @returns the exit code */
  async report(thrown: unknown, app?: string): Promise<number> {
    const error = this.options.json === true ? thrown : await this.#withNearId(thrown);
    // How to start a daemon for a custom socket is unknown.
    const start = this.options.socket === undefined ? daemonCommand(this.host) : undefined;
    const { exitCode, message, details } = describeFailure(error, app, start);
    if (this.options.json === true) {
      if (message !== "") this.host.stderr.write(formatJson(failureJson(error), 0));
      return exitCode;
    }
    for (const line of details) this.note(`  | ${line}`);
    if (message === "") return exitCode;
    if (error instanceof DeclinedError) {
      this.note("Nothing was changed.");
      return exitCode;
    }
    // Error priority for the journal (sd-daemon(3)).
    const priority = this.host.isJournal === true ? "<3>" : "";
    const prefix = errorPrefix(this.host, this.options.color);
    this.host.stderr.write(`${priority}${prefix} ${escapeLines(message)}\n`);
    return exitCode;
  }

  /** The error, with the ID of an app that a mistyped one probably means. */
  async #withNearId(error: unknown): Promise<unknown> {
    // A job names its app in a field of the request.
    if (!["not_found", "invalid_request"].includes(asSvcError(error)?.reason ?? "")) return error;
    const { withNearId } = await import("./abbreviation.ts");
    return withNearId(this, error);
  }

  /** @throws the interruption if Ctrl-C was pressed between two calls */
  throwIfInterrupted(): void {
    if (this.host.interrupted.aborted) throw new SvcError("canceled", "interrupted");
  }

  /** Waits before the next call. @throws the interruption */
  async pause(delayMs: number): Promise<void> {
    const { interrupted } = this.host;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        interrupted.removeEventListener("abort", end);
        resolve();
      };
      const timer = setTimeout(end, delayMs);
      if (interrupted.aborted) end();
      else interrupted.addEventListener("abort", end);
    });
    this.throwIfInterrupted();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const client = await this.#client?.catch(() => undefined);
    await client?.[Symbol.asyncDispose]();
  }
}
