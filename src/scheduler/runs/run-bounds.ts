import type { PlaceBounds } from "../../lib/user-places.ts";

/**
 * How many runs go at once, scheduled ones and those started by hand. Every due job starts independently of the others
 * (S 1.4.3), so the bounds are in the thousands, where the host itself comes to its end.
 */
export const runBounds: PlaceBounds = { root: 2_000, users: 3_000, perUser: 1_000 };
