/** Opens terminals of apps that run in containers. */
import { composeServiceLabel } from "../../engine/attribution.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { attachContainer, type Attachments } from "../../engine/container-attachment.ts";
import type { ContainerPrograms } from "../../engine/container-programs.ts";
import { openContainerTerminal } from "../../engine/container-terminal.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { invalidField } from "../../errors.ts";
import { defaultTerminalSize, type Terminal } from "../../lib/terminal.ts";
import { containerExpander } from "../docker/container-scope.ts";
import { noTerminal } from "../no-terminal.ts";
import type { TerminalRequest } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { appNotRunning } from "../status-changes.ts";

/** Finds a shell, because few images have more than one. */
const anyShell = ["/bin/sh", "-c", 'exec "$(command -v bash || command -v sh)"'];

/**
 * Runs as the container's own user.
 * @param running the app's running containers
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
    names.length === 0 ? `app "${id}" has no services` : `must be one of ${names.join(", ")}`,
  );
}
