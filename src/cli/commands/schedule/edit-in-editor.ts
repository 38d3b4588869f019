/** Edits a job as YAML in the user's editor, until it is valid or the user stops. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import type { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { asSvcError, describeFailure, UsageError } from "../../output/failure.ts";
import type { CliHost } from "../../host.ts";
import type { Schedule, ScheduleRequest } from "../../client/calls.ts";

/** Identifies the job and the revision that was read; the user cannot change these fields. */
type UserHelper = Pick<ScheduleRequest, "id" | "owner" | "managed_by" | "revision">;

/**
 * Opens the editor; after a mistake, opens it again with the error above the text.
 * @param put stores the job
 * @returns the result; undefined if nothing was changed
 * @throws the last mistake if the user saves the text unchanged. Other errors of `put`, such as `aborted`
 * after a concurrent change, are also thrown; the text then stays in a file that a note names.
 */
export async function editJob(
  context: CommandContext,
  job: ScheduleRequest,
  put: (job: ScheduleRequest) => Promise<Schedule>,
): Promise<Schedule | undefined> {
  const { id, owner, managed_by: managedBy, revision, ...fields } = job;
  const identity = {
    id,
    ...(owner !== undefined && { owner }),
    managed_by: managedBy,
    revision,
  } as UserHelper;
  // Private: a command or a body may contain a secret.
  const directory = await mkdtemp(join(tmpdir(), "svc-edit-"));
  const path = join(directory, "job.yaml");
  let isKept = false as boolean;
  try {
    const original = stringify(fields, { lineWidth: 0 });
    let text = original;
    let mistake: Mistake | undefined;
    for (;;) {
      await writeFile(path, commentLines(mistake) + text, { mode: 0o600 });
      await openEditor(context.host, path);
      context.throwIfInterrupted();
      const saved = withoutHead(await readFile(path, "utf8"));
      if (saved.trim() === "" || saved === original) return undefined;
      if (mistake !== undefined && saved === text) throw mistake;
      text = saved;
      try {
        return await put({ ...parseFields(text), ...identity });
      } catch (error) {
        mistake = asMistake(error);
        if (mistake !== undefined) continue;
        isKept = true;
        context.note(`Your text is saved in ${path}`);
        throw error;
      }
    }
  } finally {
    if (!isKept) await rm(directory, { recursive: true });
  }
}

const headMark = "#: ";

function commentLines(mistake: Mistake | undefined): string {
  const lines = [
    "Change the job, save and leave the editor. To change nothing, leave it as it is, or empty.",
    "A header whose value is *** keeps the value that it has; for a url of another origin, give it again.",
    ...(mistake === undefined ? [] : ["", `WRONG: ${describeFailure(mistake).message}`]),
  ];
  return lines
    .flatMap((line) => line.split("\n"))
    .map((line) => `${headMark}${line}`.trimEnd() + "\n")
    .join("");
}

function withoutHead(text: string): string {
  return text
    .split("\n")
    .filter((line) => !line.startsWith(headMark.trimEnd()))
    .join("\n");
}

/** @throws UsageError if the text is not a YAML object */
export function parseFields(text: string): ScheduleRequest {
  let value: unknown;
  try {
    value = parse(text, { maxAliasCount: 0 });
  } catch (error) {
    throw new UsageError((error as Error).message.split("\n", 1)[0] ?? "");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError("the text must be fields such as trigger: hourly");
  }
  return value;
}

/** An error that the user can fix in the editor. */
type Mistake = UsageError | SvcError;

function asMistake(error: unknown): Mistake | undefined {
  if (error instanceof UsageError) return error;
  const known = asSvcError(error);
  return known?.code === "invalid_argument" ? known : undefined;
}

/** @throws UsageError if the editor cannot be started or fails */
async function openEditor({ env }: CliHost, path: string): Promise<void> {
  const editor = [env["VISUAL"], env["EDITOR"], "vi"].find((each) => (each ?? "") !== "") ?? "vi";
  // Run by a shell, since the variables may contain command lines such as `code --wait`.
  const child = spawn("/bin/sh", ["-c", `${editor} "$1"`, "sh", path], { stdio: "inherit" });
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  if (code !== 0)
    throw new UsageError(
      `the editor "${editor}" exited with ${code ?? signal ?? "an error"}; nothing was changed`,
    );
}
