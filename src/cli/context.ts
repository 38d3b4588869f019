/** What a running command works with. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { SvcError } from "../errors.ts";
import { chooseColumns } from "./choose-columns.ts";
import { AdvisedError, describeFailure, failureJson } from "./failure.ts";
import type { CliHost, OutputStream } from "./host.ts";
import { localNode } from "./nodes/node-file.ts";
import { daemonCommand, hasPrivateStore } from "./no-daemon.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { createPaint, wantsColor, type Paint } from "./render/color.ts";
import { escapeCell, escapeControls, escapeLines } from "./render/escape.ts";
import { formatJson } from "./render/json.ts";
import { renderFields, renderTable, type Column, type Field, type TableStyle } from "./render/table.ts";
import { columnsOf } from "./render/width.ts";
import { connect } from "./routing.ts";
import type { UnaryCall } from "./transport/calls.ts";
import type { CallOptions, Client, Method, Requests } from "./transport/client.ts";
import { drained } from "./transport/http.ts";
import type { RestShape } from "./transport/rest-shape.ts";

/** The options that every command takes. */
export interface GlobalOptions {
  readonly socket?: string;
  /** The address of a daemon elsewhere. */
  readonly host?: string;
  /** The name of one. */
  readonly node?: string;
  readonly json?: boolean;
  /** Seconds. */
  readonly timeout?: number;
  readonly color: boolean;
  readonly yes?: boolean;
  /** Of a table the first column alone, without titles. */
  readonly quiet?: boolean;
  /** The columns of a table; default: all that it has. */
  readonly columns?: readonly string[];
}

/**
 * When a command of a regular user works on apps of their own though there is a daemon for all users, which does not run:
 * where there are such apps, when the user says so when asked, or because the user said so already.
 */
export type Privacy = "existing" | "asked" | "wanted";

export class CommandContext implements AsyncDisposable {
  readonly host: CliHost;
  readonly options: GlobalOptions;
  /** Print JSON instead of text for people. */
  readonly json: boolean;
  readonly paint: Paint;
  #client: Promise<Client> | undefined;
  #openInProcess: () => Promise<Client>;
  #privacy: Privacy = "existing";

  constructor(host: CliHost, options: GlobalOptions, openInProcess: () => Promise<Client>) {
    this.host = host;
    this.options = options;
    this.json = options.json ?? false;
    this.paint = createPaint(wantsColor(host.env, host.stdout.isTTY ?? false, options.color));
    this.#openInProcess = openInProcess;
  }

  /** To be said before the first call. */
  set privacy(privacy: Privacy) {
    this.#privacy = privacy;
  }

  /**
   * The same command at another node, by its name or its address; `local` is this machine, or the socket that the line names.
   * Its own to dispose.
   */
  at(node: string | { readonly host: string }): CommandContext {
    const { host: _host, node: _node, socket, ...others } = this.options;
    const named = typeof node === "string" ? { node } : node;
    const target = node === localNode && socket !== undefined ? { socket } : named;
    return new CommandContext(this.host, { ...others, ...target }, this.#openInProcess);
  }

  /** The same command at another socket; `interrupted` ends it instead of what ends this one. Its own to dispose. */
  on(socket: string, interrupted: AbortSignal = this.host.interrupted): CommandContext {
    const { host: _host, node: _node, ...others } = this.options;
    return new CommandContext({ ...this.host, interrupted }, { ...others, socket }, this.#openInProcess);
  }

  /**
   * The same command over the same connection, which Ctrl-C does not end, but the time: to put in order what it left. Not
   * to be disposed.
   */
  uninterrupted(limitMs: number): CommandContext {
    return this.#sharing({ ...this.host, interrupted: AbortSignal.timeout(limitMs) });
  }

  /** The same command over the same connection, which writes elsewhere. Not to be disposed. */
  writingTo(stdout: OutputStream, stderr: OutputStream): CommandContext {
    return this.#sharing({ ...this.host, stdout, stderr });
  }

  #sharing(host: CliHost): CommandContext {
    const context = new CommandContext(host, this.options, this.#openInProcess);
    context.#client = this.client();
    return context;
  }

  /** The daemon, or the service layer in this process: found at the first use. */
  client(): Promise<Client> {
    return (this.#client ??= connect(this.host, {
      target: this.options,
      warn: (message) => this.note(`warning: ${message}`),
      openInProcess: this.#openInProcess,
      allowPrivate: (problem) => this.#allowPrivate(problem),
    }));
  }

  /** @throws the problem, unless the user wants to work on their own */
  async #allowPrivate(problem: SvcError): Promise<void> {
    const { host } = this;
    const message = `${problem.message}; to have apps of your own beside them: svc install --private`;
    if (this.#privacy === "wanted") return;
    if (this.#privacy === "existing") {
      if (!hasPrivateStore(host)) throw new AdvisedError(problem, message);
      this.note(`warning: ${problem.message}; these are your own`);
    } else {
      if (!isInteractive(host)) throw new AdvisedError(problem, message);
      this.note(`${problem.message}.`);
      if (!(await confirm(host, "Install for yourself alone?"))) throw problem;
    }
  }

  get #callOptions(): CallOptions {
    const { timeout } = this.options;
    return {
      signal: this.host.interrupted,
      timeoutMs: timeout === undefined ? undefined : Math.round(timeout * 1000),
    };
  }

  /** Calls a unary method with the options of the command line. At a terminal, an app's id may be its beginning. */
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
   * Calls a method of any kind with messages and the options of the command line; see {@link Client.invoke}.
   * @param signal ends it, too
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

  /** As {@link invoke}, for a method that gives one answer: as REST has it, beyond what {@link call} can ask for. */
  async invokeOnce<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
  ): Promise<RestShape<MessageShape<O>>> {
    const { messageToRest } = await import("./transport/rest-json.ts");
    for await (const message of this.invoke(method, requests)) return messageToRest(method.output, message);
    throw new SvcError("internal", `${method.name}: the daemon gave no result`);
  }

  /**
   * As {@link invoke}, for what may have nothing to say for hours: ends when nobody reads the output any more, and begins again
   * where the daemon goes away and comes back.
   * @param request what to ask for, each time that it begins
   */
  async *follow<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    request: () => MessageInitShape<I>,
  ): AsyncIterable<MessageShape<O>> {
    const { follow } = await import("./follow.ts");
    using _watch = await this.host.watchReader();
    yield* follow(this, method, request);
  }

  get tableStyle(): TableStyle {
    const { stdout } = this.host;
    return { paint: this.paint, columns: stdout.isTTY === true ? columnsOf(stdout) : undefined };
  }

  /** Writes to stdout; resolves when a slow reader has caught up. Text of others must be escaped by then. */
  print(text: string | Uint8Array): Promise<void> {
    const { stdout } = this.host;
    return text.length === 0 || stdout.write(text) ? Promise.resolve() : drained(stdout);
  }

  /** A table with the columns that the line asks for. @throws UsageError for one that it does not have */
  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
    const first = columns.find(({ title }) => title !== "");
    if (this.options.quiet === true && first !== undefined)
      return rows.map((row) => `${escapeCell(first.value(row))}\n`).join("");
    return renderTable(chooseColumns(columns, this.options.columns), rows, this.tableStyle);
  }

  /** A table for people. @param none what is said instead of one without rows */
  printTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[], none?: string): Promise<void> {
    if (rows.length > 0 || none === undefined) return this.#page(this.table(columns, rows));
    this.note(none);
    return Promise.resolve();
  }

  /** What is longer than the terminal goes through a pager. */
  async #page(text: string): Promise<void> {
    if ((this.host.stdout.rows ?? 0) === 0) return this.print(text);
    const { page } = await import("./pager.ts");
    return page(this.host, text);
  }

  /** Names and values, one on each line. */
  printFields(fields: readonly Field[]): Promise<void> {
    return this.print(renderFields(fields, this.paint));
  }

  printJson(value: unknown): Promise<void> {
    return this.print(formatJson(value, 2));
  }

  /** One line of a JSON stream. */
  printJsonLine(value: unknown): Promise<void> {
    return this.print(formatJson(value, 0));
  }

  /** A line for people, whoever has written what is in it. */
  printLine(line: string): Promise<void> {
    return this.print(`${escapeControls(line)}\n`);
  }

  /** What came of the command: the answer as JSON, or a line for people. */
  tell(answer: unknown, line: string): Promise<void> {
    return this.json ? this.printJson(answer) : this.printLine(line);
  }

  /** A line for people, beside the output. Control characters are escaped. */
  note(line: string): void {
    this.host.stderr.write(`${escapeControls(line)}\n`);
  }

  /** As {@link note}, of several lines. */
  noteLines(text: string): void {
    this.host.stderr.write(`${escapeLines(text)}\n`);
  }

  /** Says what failed: in words, or as one line of JSON in the shape of REST. @returns the exit code */
  report(error: unknown, app?: string): number {
    // What another path needs is not known.
    const start = this.options.socket === undefined ? daemonCommand(this.host) : undefined;
    const { exitCode, message, details } = describeFailure(error, app, start);
    if (this.json) {
      if (message !== "") this.host.stderr.write(formatJson(failureJson(error), 0));
      return exitCode;
    }
    for (const line of details) this.note(`  | ${line}`);
    // What the journal takes for the priority of an error (sd-daemon(3)).
    const priority = this.host.isJournal === true ? "<3>" : "";
    if (message !== "") this.noteLines(`${priority}svc: ${message}`);
    return exitCode;
  }

  /** @throws the interruption, when Ctrl-C came between two calls */
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
