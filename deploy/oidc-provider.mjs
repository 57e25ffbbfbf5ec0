// A real OpenID provider for the demo and the tests: node deploy/oidc-provider.mjs PORT ACCOUNTS.json EGS_URL
// ACCOUNTS.json is read again at each sign-in: {"ada": {"email": "ada@example.org", "groups": ["gpu-admins"]}}. Any password is accepted.
import { readFileSync } from 'node:fs'
import Provider from 'oidc-provider'

const [port, accountsPath, egsUrl] = process.argv.slice(2)
const issuer = `http://127.0.0.1:${port}`
const accounts = () => JSON.parse(readFileSync(accountsPath, 'utf-8'))

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'egs',
    client_secret: 'egs-demo-secret',
    redirect_uris: [`${egsUrl}/login/demo/callback/`],
    post_logout_redirect_uris: [`${egsUrl}/login/`],
    backchannel_logout_uri: `${egsUrl}/login/demo/backchannel-logout/`,
    backchannel_logout_session_required: true,
    token_endpoint_auth_method: 'client_secret_post'
  }],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email', 'email_verified'] },
  features: { backchannelLogout: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (_, sub) => {
    const told = accounts()[sub]
    return told && {
      accountId: sub,
      claims: () => ({ sub, preferred_username: sub, email: told.email ?? `${sub}@example.org`, email_verified: true, groups: told.groups ?? [] })
    }
  }
})
provider.listen(Number(port), '127.0.0.1', () => console.log(`ready ${issuer}`))
