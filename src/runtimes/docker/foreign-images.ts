/** Which images an app may name. */
import { SvcError } from "../../errors.ts";

/** Names of images that svc builds; no registry is called so. */
export const builtPrefix = "svc.local/";

/** @throws SvcError `denied` for the image that svc built for some app, or one that is named by its id: it may be another user's */
export function requireForeign(image: string): void {
  const isId = /^sha(256|512):/i.test(image);
  if (!image.startsWith(builtPrefix) && !isId) return;
  const what = isId
    ? "the id of somebody's image: write its name with a tag"
    : "an image that svc built for an app";
  throw new SvcError("denied", `"${image}" is ${what}`);
}
