/** Errors that packages of every kind share. */
import { SvcError } from "../errors.ts";
import { manifestFileName } from "./manifest.ts";

/** Turns the failure to find a manifest into one that says what is missing where; throws any other as it is. */
export function missingManifest(
  error: unknown,
  { url, directory = "" }: { url: string; directory?: string | undefined },
): never {
  if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
  const place = directory === "" ? url : `${directory} of ${url}`;
  const message = `there is no ${manifestFileName} in ${place}: it is not a package; svc package init makes one of what is there`;
  throw new SvcError("no_manifest", message, { payload: { url, directory }, cause: error });
}
