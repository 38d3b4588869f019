/** Opens terminals of apps that run as processes. */
import { constants } from "node:fs/promises";
import { SvcError, invalidField } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { mayAccess } from "../../sys/may-access.ts";
import {
  defaultTerminalSize,
  type Terminal,
  type TerminalPiece,
  type TerminalSize,
} from "../../lib/terminal.ts";
import { WindowSize } from "../../lib/window-size.ts";
import { appExpander, prepareProcess } from "../app-environment.ts";
import { hasOwnTerminal } from "../../packages/manifest/manifest.ts";
import { noTerminal } from "../no-terminal.ts";
import type { TerminalRequest } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { appNotRunning } from "../status-changes.ts";
import {
  connectSupervisor,
  type ConnectOptions,
  type SupervisorConnection,
} from "./supervisor-connection.ts";
import type { TerminalEvent } from "./supervisor-types.ts";

/** Access to supervisors. */
export type Supervision = ConnectOptions & { readonly userHelpers: UserHelpers };

/**
 * Opens the app's own terminal through its supervisor, or runs a program as the app's owner, in its directory and
 * environment, even while the app is stopped.
 */
export async function openProcessTerminal(
  supervision: Supervision,
  app: RunnableApp,
  request: TerminalRequest,
): Promise<Terminal> {
  const { userHelpers } = supervision;
  if (request.service !== "") throw invalidField("service", `app "${app.id}" is not a compose project`);
  if (request.session === "attach" && hasOwnTerminal(app.manifest)) {
    return watchApp(supervision, app, request.size);
  }
  const { cwd, env } = prepareProcess(app);
  const argv = await programOf(userHelpers, app, request);
  if (request.withoutTerminal === true) return userHelpers.openTerminal(app.uid, { argv, cwd, env });
  const shown = { env: { TERM: "xterm-256color", ...env }, size: request.size ?? defaultTerminalSize };
  return userHelpers.openTerminal(app.uid, { argv, cwd, ...shown });
}

async function watchApp(
  supervision: Supervision,
  app: RunnableApp,
  size: TerminalSize | undefined,
): Promise<Terminal> {
  const connection = await connectSupervisor(app, supervision);
  if (connection === undefined) throw appNotRunning(app.id);
  try {
    return new AppTerminal(connection, await connection.attach(size));
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Closing it only ends the watching. */
class AppTerminal implements Terminal {
  readonly output: AsyncIterable<TerminalPiece>;
  readonly exitCode: Promise<number>;
  readonly #connection: SupervisorConnection;
  readonly #window: WindowSize;
  readonly #ended = Promise.withResolvers<number>();

  constructor(connection: SupervisorConnection, events: AsyncIterable<TerminalEvent>) {
    this.#connection = connection;
    this.#window = new WindowSize((size) => connection.resize(size));
    this.output = this.#read(events);
    this.exitCode = this.#ended.promise;
    this.exitCode.catch(() => undefined);
  }

  async *#read(events: AsyncIterable<TerminalEvent>): AsyncGenerator<TerminalPiece, void> {
    for await (const event of events) {
      if (event.type === "output") yield { data: Buffer.from(event.data, "base64") };
      else if (event.type === "missed") yield { missedBytes: event.bytes };
      else {
        this.#ended.resolve(event.code);
        return;
      }
    }
    this.#ended.reject(new SvcError("app_not_running", "the app's supervisor has exited"));
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#connection.type(bytes);
  }

  /** Does nothing: other clients, and the app, go on using the terminal. */
  async endInput(): Promise<void> {}

  resize(size: TerminalSize): void {
    this.#window.set(size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close();
    await Promise.resolve();
  }
}

async function programOf(
  userHelpers: UserHelpers,
  app: RunnableApp,
  { session, command, withoutTerminal = false }: TerminalRequest,
): Promise<readonly string[]> {
  if (session === "attach") {
    const { argv } = app.manifest.console ?? {};
    if (argv === undefined) throw noTerminal(app.id);
    return argv.map(appExpander(app));
  }
  if (command.length > 0) return command;
  const { shell } = (await userHelpers.as(app.uid)).user;
  // Accounts of services often have a shell that exits at once.
  const isShell =
    shell !== "" && !/\/(nologin|false|sync)$/.test(shell) && (await mayAccess(shell, constants.X_OK));
  return [isShell ? shell : "/bin/sh", ...(withoutTerminal ? [] : ["-i"])];
}
