/** Terminals of apps that run as processes. */
import { access, constants } from "node:fs/promises";
import { invalidField } from "../../errors.ts";
import type { Identities } from "../../identity/identity.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { appExpander, prepareProcess } from "../app-environment.ts";
import { noTerminal } from "../no-terminal.ts";
import type { RunnableApp } from "../runtime.ts";
import type { TerminalRequest } from "../terminal-request.ts";

/** As its owner, in the directory and the environment of its command, whether it runs or not. */
export async function openProcessTerminal(
  identities: Identities,
  app: RunnableApp,
  request: TerminalRequest,
): Promise<Terminal> {
  if (request.service !== "") throw invalidField("service", `app "${app.id}" is no compose project`);
  const { cwd, env } = prepareProcess(app);
  const argv = await programOf(identities, app, request);
  return identities.openTerminal(app.uid, {
    argv,
    cwd,
    env: { TERM: "xterm-256color", ...env },
    size: request.size,
  });
}

async function programOf(
  identities: Identities,
  app: RunnableApp,
  { session, command }: TerminalRequest,
): Promise<readonly string[]> {
  if (session === "attach") {
    const { console } = app.manifest;
    if (console === undefined) throw noTerminal(app.id);
    return console.argv.map(appExpander(app));
  }
  if (command.length > 0) return command;
  const { shell } = (await identities.as(app.uid)).user;
  // An account of a service has one that says no.
  const isShell = shell !== "" && !/\/(nologin|false|sync)$/.test(shell) && (await isExecutable(shell));
  return isShell ? [shell, "-i"] : ["/bin/sh", "-i"];
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}
