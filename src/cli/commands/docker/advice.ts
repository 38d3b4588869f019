/** What to do next when a command about containers fails. */
import type { Advice } from "../../advice.ts";

export const adviceOnContainers: Advice = ({ reason, message }) =>
  reason === "not_found" && /^no (container|compose project) /.test(message)
    ? "see them with: svc docker ps --all"
    : undefined;
