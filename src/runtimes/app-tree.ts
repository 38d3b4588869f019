/**
 * Names inside an app's directory (decisions 19, 39).
 *
 *     <store>/apps/<id>/   the daemon's, 0750, with the group of the app's uid
 *       repo/              the app's uid's, 0700, as all the others
 *       data/
 *       volumes/<path>/    one for each volume of the manifest
 *       logs/
 *
 * A directory that a container mounts is the uid's; what leads there is the daemon's too (`identity/owned-tree.ts`): with
 * the volume `/var/lib/db`, `volumes/`, `volumes/var/` and `volumes/var/lib/`. Of a compose project that is what leads
 * to each of its binds; those of the checkout that are data live below `data/` (`compose/checkout-binds.ts`).
 */
export const appTree = {
  /** The checkout with what its build made. */
  repo: "repo",
  /** The version before, kept while an upgrade is not proven. */
  previousRepo: "repo.previous",
  /** The next version, while it is made ready beside the one that runs. */
  nextRepo: "repo.next",
  data: "data",
  /** The data as it was before the new version touched them, kept until it is proven. */
  previousData: "data.previous",
  volumes: "volumes",
  logs: "logs",
} as const;

/** The checkout of this app, as it is called in its directory. */
export function checkoutOf({ checkout }: { readonly checkout?: string }): string {
  return checkout ?? appTree.repo;
}
