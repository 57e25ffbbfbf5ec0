from egs_client.cli.main import run

run()
