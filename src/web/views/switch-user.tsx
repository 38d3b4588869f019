import { plainText } from "../plain-text.ts";
import { texts } from "../texts.ts";

interface SwitchUserProps {
  /** The user's name; undefined if nobody is signed in. */
  readonly current: string | undefined;
  readonly other: string;
  readonly answer: (mayIt: boolean) => void;
}

/** Asks before a sign-in link changes who the page acts as: the link may be another user's. */
export function SwitchUserView({ current, other, answer }: SwitchUserProps) {
  const { switchUser } = texts;
  const [from, to] = [current && plainText(current), plainText(other)];
  return (
    <main class="sign-in">
      <h1>{switchUser.title(to)}</h1>
      <p role="alert">{switchUser.explain(to, from)}</p>
      <div class="row">
        <button type="button" onClick={() => answer(false)}>
          {from === undefined ? switchUser.decline : switchUser.stay(from)}
        </button>
        <button type="button" class={from === undefined ? "" : "danger"} onClick={() => answer(true)}>
          {from === undefined ? switchUser.proceed(to) : switchUser.change(to)}
        </button>
      </div>
    </main>
  );
}
