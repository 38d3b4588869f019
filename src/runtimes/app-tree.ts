/**
 * Names inside an app's directory.
 *
 *     <store>/apps/<id>/   owned by the daemon, 0750, with the group of the app's uid, but open only to that uid
 *       repo/              owned by the app's uid, 0700, like all others
 *       data/
 *       volumes/<path>/    one per volume of the manifest
 *       logs/
 *       inline/            inline contents of a compose file that services mount (`compose/inline-files.ts`)
 *
 * A directory that a container mounts belongs to the uid; its parents belong to the daemon (`run-as/owned-tree.ts`): for
 * the volume `/var/lib/db` these are `volumes/`, `volumes/var/` and `volumes/var/lib/`. The same applies to the binds of
 * a compose project; binds of the checkout that hold data live below `data/` (`compose/checkout-binds.ts`).
 */
export const appTree = {
  /** The checkout and its build output. */
  repo: "repo",
  /** The previous version, kept until the upgrade is verified. */
  previousRepo: "repo.previous",
  /** The next version, while it is prepared beside the running one. */
  nextRepo: "repo.next",
  data: "data",
  /** The data from before the new version changed it, kept until the new version is verified. */
  previousData: "data.previous",
  volumes: "volumes",
  logs: "logs",
  /** Created again at each start. */
  inline: "inline",
} as const;

/** The app's checkout, relative to its directory. */
export function checkoutOf({ checkout }: { readonly checkout?: string }): string {
  return checkout ?? appTree.repo;
}
