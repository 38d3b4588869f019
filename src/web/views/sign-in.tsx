import { signIn } from "../session.ts";
import { texts } from "../texts.ts";

/** @param message why the user must sign in, or what failed */
export function SignInView({ message }: { message?: string | undefined }) {
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const token = new FormData(event.currentTarget as HTMLFormElement).get("token");
    if (typeof token === "string" && token.trim() !== "") void signIn(token.trim());
  };
  return (
    <main class="sign-in">
      <h1>svc</h1>
      {message !== undefined && (
        <p class="notice" role="alert">
          {message}
        </p>
      )}
      <p>{texts.signIn.how}</p>
      <pre class="command">{texts.signIn.command}</pre>
      <p class="quiet">
        {texts.signIn.inClone} <code>{texts.signIn.cloneCommand}</code>
      </p>
      <form onSubmit={submit}>
        <label for="token">{texts.signIn.orToken}</label>
        <div class="row">
          <input
            id="token"
            name="token"
            type="password"
            aria-label={texts.signIn.token}
            autocomplete="off"
            spellcheck={false}
            required
          />
          <button type="submit">{texts.signIn.submit}</button>
        </div>
      </form>
      <p class="quiet">{texts.signIn.kept}</p>
    </main>
  );
}
