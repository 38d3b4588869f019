import { access, constants } from "node:fs/promises";

/** Whether this process may do that with what is there; without a mode whether it is there. @param mode such as `constants.X_OK` */
export function mayAccess(path: string, mode: number = constants.F_OK): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
