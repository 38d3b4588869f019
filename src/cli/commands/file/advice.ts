/** What to do next where something is in the way. */
import type { Advice } from "../../advice.ts";

/** For commands that can replace it. */
export const adviceOnForce: Advice = ({ reason }) =>
  reason === "already_exists" ? "replace what is there with --force" : undefined;
