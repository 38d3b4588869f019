/** The text of a Dockerfile, read by its owner. */
import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { RequestOptions } from "../../run-as/user-helper-types.ts";
import { failedWithoutOutput } from "./build-output.ts";

export interface DockerfileSource {
  /** The context, relative to the app's directory. */
  readonly context: string;
  /** Path relative to the context; may lead to another directory of the app. */
  readonly dockerfile: string;
  /** The text itself instead of a file. */
  readonly inline?: string | undefined;
}

const maxDockerfileBytes = 256 * 1024;

/**
 * @param root the app's directory, absolute
 * @throws SvcError `build_failed` for a file that is missing or not UTF-8; `too_many` for a large one
 */
export async function readDockerfile(
  userHelper: Pick<UserHelper, "readFile" | "stat">,
  root: string,
  { context, dockerfile, inline }: DockerfileSource,
  limits: RequestOptions = {},
): Promise<string> {
  if (inline !== undefined) return inline;
  const path = posix.join(context, dockerfile);
  if ((await userHelper.stat(root, path, limits))?.type !== "file")
    throw failedWithoutOutput(`the build context "${context}" has no file "${dockerfile}"`);
  const text = await userHelper.readFile(root, path, { ...limits, maxBytes: maxDockerfileBytes });
  // A text that cannot be checked is rejected, not converted.
  if (!isUtf8(text)) throw failedWithoutOutput(`the file "${dockerfile}" is not UTF-8`);
  return text.toString();
}

/** The text of the Dockerfile's own ignore file, which BuildKit prefers to that of the context. */
export async function readOwnIgnore(
  userHelper: Pick<UserHelper, "readFile" | "stat">,
  root: string,
  { context, dockerfile, inline }: DockerfileSource,
  limits: RequestOptions = {},
): Promise<string | undefined> {
  const path = `${posix.join(context, dockerfile)}.dockerignore`;
  if (inline !== undefined || (await userHelper.stat(root, path, limits))?.type !== "file") return undefined;
  return (await userHelper.readFile(root, path, { ...limits, maxBytes: maxDockerfileBytes })).toString();
}
