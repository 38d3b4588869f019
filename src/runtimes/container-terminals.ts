/** Terminals of apps that run in containers. */
import { composeServiceLabel } from "../docker/attribution.ts";
import type { ContainerRecord } from "../docker/container-record.ts";
import { attachContainer, type Attachments } from "../docker/container-attachment.ts";
import type { ContainerPrograms } from "../docker/container-programs.ts";
import { openContainerTerminal } from "../docker/container-terminal.ts";
import type { DockerEngine } from "../docker/engine.ts";
import { invalidField } from "../errors.ts";
import { defaultTerminalSize, type Terminal } from "../lib/terminal.ts";
import { containerExpander } from "./docker/container-scope.ts";
import { noTerminal } from "./no-terminal.ts";
import type { RunnableApp, TerminalRequest } from "./runtime.ts";
import { appNotRunning } from "./status-changes.ts";

/** Few images have more than one. */
const anyShell = ["/bin/sh", "-c", 'exec "$(command -v bash || command -v sh)"'];

/**
 * As the container's own user.
 * @param running its containers that run
 */
export async function openAppTerminal(
  engine: DockerEngine,
  app: RunnableApp,
  running: readonly ContainerRecord[],
  { programs, ...attachments }: Attachments & { readonly programs: ContainerPrograms },
  { session, command, service, size, withoutTerminal = false }: TerminalRequest,
): Promise<Terminal> {
  const container = chooseContainer(app, running, service);
  const written = app.manifest.console?.argv?.map(containerExpander(app));
  if (session === "attach" && written === undefined) {
    if (!container.hasTerminal) throw noTerminal(app.id, container.labels[composeServiceLabel]);
    return attachContainer(engine, container.id, attachments, size);
  }
  const shell = command.length > 0 ? command : anyShell;
  const argv = session === "shell" ? shell : (written ?? []);
  const window = withoutTerminal ? undefined : (size ?? defaultTerminalSize);
  return openContainerTerminal(engine, container.id, { argv, ...(window && { size: window }) }, programs);
}

function chooseContainer(
  { id }: RunnableApp,
  running: readonly ContainerRecord[],
  service: string,
): ContainerRecord {
  const [first, ...others] = running;
  if (first === undefined) throw appNotRunning(id);
  if (service === "" && others.length === 0) return first;
  const named = running.find(({ labels }) => service !== "" && labels[composeServiceLabel] === service);
  if (named !== undefined) return named;
  const names = running.flatMap(({ labels }) => labels[composeServiceLabel] ?? []);
  throw invalidField(
    "service",
    names.length === 0 ? `app "${id}" has none` : `must be one of ${names.join(", ")}`,
  );
}
