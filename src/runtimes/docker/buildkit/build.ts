/** Builds with the engine's BuildKit, which reads the Dockerfile itself and requests files in a session. */
import { randomUUID } from "node:crypto";
import { posix } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { BuildKitControl, SolveError } from "../../../engine/buildkit/control.ts";
import type { Solve } from "../../../engine/buildkit/control-messages.ts";
import { openSession, type SessionMethod } from "../../../engine/buildkit/session.ts";
import { EngineRejection } from "../../../engine/engine-errors.ts";
import type { DockerEngine } from "../../../engine/engine.ts";
import { SvcError } from "../../../errors.ts";
import { slicePauses } from "../../../lib/slice-pauses.ts";
import type { UserHelper } from "../../../run-as/user-helper.ts";
import { maxContextBytes, requireContext } from "../build-context.ts";
import type { ChooseEntries } from "../context-entries.ts";
import { buildFailed, type BuildLines } from "../build-output.ts";
import { fileSync, fileSyncMethod, type SyncSource } from "./file-sync.ts";
import { StepLines } from "./progress.ts";

export interface BuildKitOptions {
  readonly userHelper: UserHelper;
  readonly chooseEntries: ChooseEntries;
  /** The app's directory, absolute. */
  readonly root: string;
  /** The contexts by name, relative to `root`; the main one is `context`. */
  readonly contexts: Readonly<Record<string, string>>;
  readonly dockerfileText: string;
  /** Text of the Dockerfile's own ignore file. */
  readonly ignoreText: string | undefined;
  /** Name of the image, with a tag. */
  readonly tag: string;
  /** Options of the frontend that reads Dockerfiles, such as `build-arg:NAME`. */
  readonly attributes: Readonly<Record<string, string>>;
  readonly entitlements: readonly string[];
  /** Further methods of the session, such as for secrets. */
  readonly methods: ReadonlyMap<string, SessionMethod>;
  readonly lines: BuildLines;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Name of the Dockerfile in its directory of the session, which has only this file and its ignore file. */
const dockerfileName = "Dockerfile";
/** Time for the last progress after a build has ended. */
const lastProgressMs = 2_000;

/**
 * @returns false if the engine has no BuildKit
 * @throws SvcError `build_failed`; `too_many` if a context is too large
 */
export async function buildWithBuildKit(engine: DockerEngine, options: BuildKitOptions): Promise<boolean> {
  const { userHelper, root, contexts, tag, timeoutMs, signal } = options;
  for (const path of Object.values(contexts))
    await requireContext(userHelper, root, path, { timeoutMs, signal });
  const version = await engine.apiVersion(signal);
  return engine.operate(
    `build ${tag}`,
    async (_docker, ended) => {
      try {
        await build({ socketPath: engine.socket, version, signal: ended }, options);
        return true;
      } catch (error) {
        if (error instanceof EngineRejection && error.statusCode === 404) return false;
        throw error;
      }
    },
    { timeoutMs, signal, waitsFor: "build" },
  );
}

interface EngineAccess {
  readonly socketPath: string;
  readonly version: string;
  readonly signal: AbortSignal;
}

/** @throws EngineRejection if the engine has no BuildKit */
async function build(access: EngineAccess, options: BuildKitOptions): Promise<void> {
  const { tag, lines, methods } = options;
  const { signal } = access;
  const sync = fileSync({ ...options, signal, maxBytes: maxContextBytes, sources: sourcesOf(options) });
  let failure: Error | undefined;
  const id = randomUUID();
  using _session = await openSession({
    ...{ ...access, id, methods: new Map([[fileSyncMethod, sync], ...methods]) },
    onError: (error) => (failure ??= error),
  });
  using control = await BuildKitControl.open(access);
  try {
    await solve(control, id, options);
  } catch (error) {
    // An error of the owner's side caused the engine's.
    if (failure instanceof SvcError && failure.code !== "not_found") throw failure;
    if (!(error instanceof SolveError)) throw error;
    throw buildFailed(tag, error.message, exitCodeOf(error.message), lines.end());
  }
}

function sourcesOf({ root, contexts, dockerfileText, ignoreText }: BuildKitOptions): Map<string, SyncSource> {
  const directories = Object.entries(contexts).map(([name, path]): [string, SyncSource] => [
    name,
    { directory: posix.join(root, path) },
  ]);
  const files = new Map([[dockerfileName, Buffer.from(dockerfileText)]]);
  if (ignoreText !== undefined) files.set(`${dockerfileName}.dockerignore`, Buffer.from(ignoreText));
  return new Map<string, SyncSource>([...directories, ["dockerfile", { files }]]);
}

async function solve(
  control: BuildKitControl,
  session: string,
  { tag, attributes, entitlements, lines, dockerfileText }: BuildKitOptions,
): Promise<void> {
  const all = { filename: dockerfileName, ...attributes };
  try {
    await run(control, { ref: randomUUID(), session, attributes: all, names: [tag], entitlements }, lines);
  } catch (error) {
    const frontend = error instanceof SolveError ? missingFrontend(dockerfileText, error.message) : undefined;
    if (frontend === undefined) throw error;
    lines.add(`the frontend ${frontend} cannot be pulled; the engine reads the Dockerfile itself\n`);
    // With `cmdline`, the engine's own frontend ignores the `syntax` directive.
    const own = { ...all, cmdline: frontend };
    await run(control, { ref: randomUUID(), session, attributes: own, names: [tag], entitlements }, lines);
  }
}

async function run(control: BuildKitControl, request: Solve, lines: BuildLines): Promise<void> {
  const steps = new StepLines((text) => lines.add(text));
  const following = (async () => {
    const pause = slicePauses();
    for await (const status of control.status(request.ref)) {
      await pause();
      steps.add(status);
    }
  })().catch(() => undefined);
  try {
    await control.solve(request);
  } finally {
    await Promise.race([following, wait(lastProgressMs, undefined, { ref: false })]);
  }
}

/** The stable frontend that the Dockerfile names, if the error is that no registry provides it. */
function missingFrontend(text: string, message: string): string | undefined {
  const isMissing = /docker\.io\/docker\/dockerfile:|frontend gateway\.v0: failed to do request/.test(
    message,
  );
  return isMissing ? /^#\s*syntax\s*=\s*(docker\/dockerfile:1(?:\.\d+)*)\s*$/im.exec(text)?.[1] : undefined;
}

function exitCodeOf(message: string): number | undefined {
  const code = /exit code: (\d+)$/.exec(message)?.[1];
  return code === undefined ? undefined : Number(code);
}
