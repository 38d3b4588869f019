/**
 * Connect ends the signals of every call by `abort()` without a reason, those of calls that went well included, and Node
 * makes an exception with a stack for each: a sixth of what a call costs. From here on all of them share one, which says
 * the same but where it came from; an abort with a reason keeps it.
 *
 * It changes `AbortController` for the whole process, as Connect takes no other.
 */
export function shareAbortReason(): void {
  const { prototype } = AbortController;
  if (Object.hasOwn(prototype, isSharing)) return;
  const shared = new DOMException("This operation was aborted", "AbortError");
  const own = Object.getOwnPropertyDescriptor(prototype, "abort") ?? {};
  const abort = own.value as (this: AbortController, reason: unknown) => void;
  function abortSharing(this: AbortController, reason: unknown = shared): void {
    abort.call(this, reason);
  }
  Object.defineProperties(prototype, {
    abort: { ...own, value: abortSharing },
    [isSharing]: { value: true },
  });
}

const isSharing = Symbol("shares its reason");
